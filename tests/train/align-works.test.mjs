// The trainers of tinyloom/align do what they are for, in short: bench/align.mjs runs the same whole, on three seeds.
// reads: bench/align.mjs bench/align bench/figures/markdown.mjs bench/results.mjs bench/workloads.mjs scripts/lib.mjs scripts/machine.mjs
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { root, target } from "../../scripts/lib.mjs";
import { told } from "../child.mjs";
import { longTest } from "../gate/core.mjs";

const folder = join(target, "align");
rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });

/** Runs a task; gives its result. */
async function shortly(t, name) {
  const args = [name, "--seeds", "1", "--short", "--out", folder];
  const { printed } = await told(join(root, "bench/align.mjs"), { args, signal: t.signal });
  t.diagnostic(printed);
  const [, file] = /^written: (.+)$/m.exec(printed) ?? assert.fail(printed);
  return JSON.parse(readFileSync(file, "utf8")).results[0];
}

longTest("GRPO: sums that a third of wrong answers has spoilt become right", async (t) => {
  const { curve } = await shortly(t, "sums");
  const [before, after] = [curve[0], curve.at(-1)];
  assert.ok(before.sampled < 0.7, `${before.sampled} at first`);
  assert.ok(after.sampled > before.sampled + 0.25, `from ${before.sampled} to ${after.sampled}`);
});

longTest("DPO: the preferred kind of text becomes the usual one", async (t) => {
  const { before, after } = await shortly(t, "kinds");
  assert.ok(
    before.preferred < 0.3 && after.preferred > 0.8,
    `${JSON.stringify({ before, after })}`,
  );
  assert.ok(after.logprob > before.logprob + 1, "the preferred texts are likelier themselves");
  assert.ok(before.divergence === 0 && after.divergence > 0 && after.divergence < 3);
});

longTest("distillation: a student learns more beside a teacher", async (t) => {
  const { teacher, alone, distilled } = await shortly(t, "chain");
  assert.ok(distilled.loss < alone.loss - 0.01, `${distilled.loss} beside it, ${alone.loss} alone`);
  assert.ok(teacher < alone.loss);
});
