// The four programs of examples/inside show what they are there to show.
// reads: examples/inside docs/guides/interventions.md docs/guides/looking-inside.md examples/README.md
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cpSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { root, target } from "../../scripts/lib.mjs";
import { dawnEnv } from "../../scripts/machine.mjs";
import { longTest } from "../gate/core.mjs";

const limit = { timeout: 1_800_000 };
const folder = join(target, "examples", "inside"); // below the root, where the packages are found
rmSync(folder, { recursive: true, force: true });
cpSync(join(root, "examples/inside"), folder, { recursive: true });

/** What a program prints, with its picture. */
async function run(t, name, ...args) {
  const began = performance.now();
  const env = { ...process.env, ...dawnEnv() };
  const words = [`${name}.mjs`, `${name}.svg`, ...args];
  const { stdout } = await promisify(execFile)(process.execPath, words, { cwd: folder, env });
  t.diagnostic(`${((performance.now() - began) / 1000).toFixed(0)} s\n${stdout}`);
  const picture = readFileSync(join(folder, `${name}.svg`), "utf8");
  assert.ok(picture.startsWith("<svg ") && !/NaN|undefined/.test(picture), "a picture of numbers");
  return stdout;
}

const numbers = (text, pattern) =>
  [...text.matchAll(pattern)].map((match) => match.slice(1).map(Number));

longTest("induction heads appear, and the model needs them", limit, async (t) => {
  const said = await run(t, "induction");
  const [[whole, without]] = numbers(said, /whole ([\d.]+), without .* ([\d.]+)$/gm);
  assert.ok(whole < 0.5, `the loss is ${whole}`);
  assert.ok(without > whole + 1, `without them it is ${without}`);
});

longTest("the lens sees the answer come", limit, async (t) => {
  const layers = numbers(await run(t, "lens"), /after layer (\d): .* right by ([\d.]+)/g);
  assert.equal(layers.length, 5, "layers");
  assert.ok(layers[4][1] > 0.8, `the last layer is right by ${layers[4][1]}`);
  assert.ok(layers[0][1] < layers[4][1] - 0.3, `the embedding is right by ${layers[0][1]}`);
});

longTest("a patched state moves the answer where it is decided", limit, async (t) => {
  const layers = numbers(
    await run(t, "patching"),
    /layer \d: ([-\d.]+) ([-\d.]+) ([-\d.]+) ([-\d.]+) ([-\d.]+)/g,
  );
  assert.equal(layers.length, 5, "layers");
  const [first, last] = [layers[0], layers[4]];
  assert.ok(first[2] > 0.9 && first[4] < 0.1, `at first it is the name that counts: ${first}`);
  assert.ok(last[4] > 0.9 && last[2] < 0.1, `at last the last word: ${last}`);
});

/** At night longer. */
const steps = process.env.TINYLOOM_LONG ? ["1200"] : [];
longTest("weight decay makes a model understand what it has learned", limit, async (t) => {
  const said = await run(t, "grokking", ...steps);
  const of = (decay) =>
    numbers(said, new RegExp(`decay ${decay}, .*learned ([\\d.]+), unseen ([\\d.]+)`, "g"));
  const [decayed, plain] = [of(4), of(0)];
  const [last, unseen] = [decayed.slice(-3), plain.at(-1)];
  const whole = last.some(([known, others]) => known > 0.95 && others > 0.8);
  assert.ok(whole, `with weight decay: ${last}`);
  assert.ok(unseen[0] > 0.99 && unseen[1] < 0.2, `without: ${unseen}`);
  const learned = decayed.findIndex(([known]) => known > 0.97);
  const understood = decayed.findIndex(([, known]) => known > 0.75);
  assert.ok(decayed[learned][1] < 0.3, `it knows by heart first: ${decayed[learned]}`);
  assert.ok(understood >= 2.5 * learned, `points ${learned} and ${understood}`);
});

test("the documents show the pictures of these programs", () => {
  const guide = readFileSync(join(root, "docs/guides/interventions.md"), "utf8");
  for (const name of ["induction", "lens", "patching", "grokking"]) {
    assert.ok(guide.includes(`../figures/${name}.svg`), `no picture of ${name}`);
  }
});
