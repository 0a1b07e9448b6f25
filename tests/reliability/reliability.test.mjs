// How `npm run reliability` judges and keeps what it finds.
// reads: bench/results docs/reliability.md#tables tests/reliability
import assert from "node:assert/strict";
import { existsSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { root, target } from "../../scripts/lib.mjs";
import { judge as judgeLarge } from "./large.mjs";
import { judge as judgeLoss } from "./losses-stage.mjs";
import { runParts } from "./parts.mjs";
import { keep } from "./results.mjs";
import { judge } from "./soak-judge.mjs";

/** Cycles of a soak of which every fifth was looked at for its objects, and the last. */
const cyclesOf = (count, changes = {}) =>
  Array.from({ length: count }, (_, at) => ({
    gpuBytes: 0,
    bits: "b",
    wasmBytes: 100,
    heapBytes: 2000,
    bufferBytes: 100,
    ...((at % 5 === 0 || at === count - 1) && { objectBytes: 1000 }),
    ...changes[at],
  }));

test("a soak is judged by the cycles that were looked at", () => {
  for (const count of [2, 5, 12, 49, 50, 100]) {
    assert.deepEqual(judge(cyclesOf(count), 0), [], `${count} cycles`);
  }
  assert.match(judge(cyclesOf(1), 0).join(), /1 cycles are too few to compare objectBytes/);
  const grown = judge(cyclesOf(12, { 10: { objectBytes: 1020 } }), 0);
  assert.deepEqual(grown, ["objectBytes grew from 1000 to 1020 after the first tenth"]);
  assert.match(judge(cyclesOf(12, { 7: { gpuBytes: 4 } }), 0).join(), /4 bytes of the GPU/);
  assert.match(judge(cyclesOf(12, { 7: { bits: "c" } }), 0).join(), /bits differ/);
  assert.match(judge(cyclesOf(12, { 7: { wasmBytes: 101 } }), 0).join(), /wasmBytes grew/);
  assert.match(judge(cyclesOf(12, { 11: { heapBytes: 2030 } }), 0).join(), /heapBytes grew/);
});

test("a loss is whole with the right code each time, and no other", () => {
  const [lost, alive] = ["device-lost", "internal"];
  assert.equal(judgeLoss({ code: lost, next: lost }), undefined);
  assert.equal(judgeLoss({ living: alive, code: lost, next: lost }), undefined);
  assert.match(judgeLoss({ code: "internal: the GPU", next: lost }), /internal: the GPU/);
  assert.match(judgeLoss({ code: lost, next: "none" }), /none/);
  assert.match(judgeLoss({ living: lost, code: lost, next: lost }), /a living device: device-lost/);
});

test("a large model may take less than 256 MB beyond the GPU's", () => {
  const row = (beyond, bytes = 1.007e9) => ({ work: "load", beyond, bytes });
  assert.deepEqual(judgeLarge([row(120e6), row(255e6)]), []);
  assert.match(judgeLarge([row(120e6), row(256e6)]).join(), /load took 256000000 bytes/);
  assert.match(judgeLarge([row(Number.NaN)]).join(), /took NaN/);
  assert.match(judgeLarge([row(1e6, 9e8)]).join(), /900000000 bytes/);
});

test("a run shorter than by default is kept apart from the results of the documents", () => {
  const adapter = { vendor: "nobody", architecture: "none" };
  const path = keep("soak", "chromium", adapter, { steps: 1 }, { short: true });
  try {
    assert.ok(path.startsWith(join(target, "reliability")), path);
    assert.equal(JSON.parse(readFileSync(path, "utf8")).steps, 1);
    const name = path.slice(join(target, "reliability").length);
    assert.equal(existsSync(join(root, "bench", "results", name)), false);
  } finally {
    rmSync(path);
  }
});

test("every part runs, and those that are not whole are named", async () => {
  const ran = [];
  const part = (name, end) => [
    name,
    async ({ seed }) => {
      ran.push(`${name} ${seed}`);
      return end();
    },
  ];
  const parts = [
    part("one", () => false),
    part("two", () => true),
    part("three", () => Promise.reject(new Error("expected by this test"))),
    part("four", () => true),
  ];
  assert.deepEqual(await runParts(parts, { seed: 3 }), ["one", "three"]);
  assert.deepEqual(ran, ["one 3", "two 3", "three 3", "four 3"]);
});
