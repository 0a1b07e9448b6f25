// GRPO's steps are those of a reference in float64 on the same texts, and a stored run goes on to the bit.
// reads: tests/train/grpo-run.mjs tests/reference/check_grpo.py tests/reference/packed_llama.py
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { root, target } from "../../scripts/lib.mjs";
import { referencePython } from "../../scripts/reference.mjs";
import { told } from "../child.mjs";

const folder = join(target, "grpo");
rmSync(folder, { recursive: true, force: true });
const script = join(root, "tests/train/grpo-run.mjs");
const { messages, printed, code } = await told(script, { args: [folder] });
assert.equal(code, 0, printed);

test("ten steps of each kind are those of the reference in float64", async (t) => {
  const folders = readdirSync(folder).map((name) => join(folder, name));
  assert.equal(folders.length, 3);
  const program = join(root, "tests/reference/check_grpo.py");
  const { stdout } = await promisify(execFile)(await referencePython(), [program, ...folders]);
  for (const { name, steps, metrics, weights, clipped } of JSON.parse(stdout)) {
    t.diagnostic(
      `${name}: weights ${weights.toExponential(1)}, metrics ${metrics.toExponential(1)}, clipped ${clipped.toFixed(2)}`,
    );
    assert.equal(steps, 10);
    assert.ok(clipped > 0, `${name}: nothing was clipped`);
    assert.ok(weights < 1e-3, `${name}: the weights' change is ${weights} apart`);
    assert.ok(metrics < 1e-4, `${name}: the metrics are ${metrics} apart`);
  }
});

test("a run that is stored, ended and resumed is one in one piece, to the bit", () => {
  const [{ whole, parted }] = messages;
  assert.equal(whole.metrics.length, 8);
  assert.deepEqual(parted.metrics, whole.metrics);
  assert.equal(parted.hash, whole.hash);
  assert.deepEqual(whole.checkpoints, [8, 6], "behind the last update of texts, and at the end");
});

test("trainers of preference do the same in a worker, to the bit", () => {
  const [{ whole, others, remote }] = messages;
  assert.equal(others.length, 3);
  assert.deepEqual(remote.others, others);
  assert.deepEqual(remote.whole, whole);
});
