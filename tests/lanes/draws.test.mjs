// What the lanes in browsers draw by the seed, without a GPU: nothing is left out for ever.
import assert from "node:assert/strict";
import { test } from "node:test";
import { drawn, leftToAnother, ofShard } from "./lane.mjs";

const DEVICES = 2;
/** Seeds in a row among which every draw comes up. */
const RUNS = 128;

/** How often with these seeds a case ran on each device, and a kernel for another adapter with it. */
function counts(name) {
  const on = [0, 0];
  const others = [0, 0];
  for (let seed = 0; seed < RUNS; seed++) {
    const draw = drawn(name, seed, DEVICES, "check");
    for (const index of draw.on) on[index]++;
    if (draw.others !== undefined) {
      assert.ok(draw.on.includes(draw.others), `${name}: a device that does not run the case`);
      others[draw.others]++;
    }
  }
  return { on, others };
}

test("each case comes to run on each device, and each kernel for another adapter on one", () => {
  const once = { on: [2, 2], others: [1, 1] };
  const slowest = { on: [1, 1], others: [0, 0] };
  for (const [name, expected] of Object.entries({
    "linear matmul odd rows": once,
    "attention forward 4/2 heads of 32": once,
    "attention forward 2/1 heads of 128": once,
    "attention forward 2/1 heads of 256": slowest,
    "model tied: loss and gradients": once,
    "save and resume to the bit": once,
    "model tied: loss and gradients with kernels for hardware": slowest,
    "model wide: loss and gradients with split products": slowest,
  })) {
    assert.deepEqual(counts(name), expected, name);
  }
});

test("texts are checked with every seed, on the device with features", () => {
  for (const [devices, others] of [
    [2, "check"],
    [1, "own"],
  ]) {
    for (let seed = 0; seed < RUNS; seed++) {
      const { on } = drawn("texts: every kernel over the table compiles", seed, devices, others);
      assert.deepEqual(on, [0]);
    }
  }
});

test("two lanes of one driver share the cases: none runs in both at once, and each comes to run in both", () => {
  const names = Array.from({ length: 32 }, (_, index) => `case ${index}`);
  const ran = Object.fromEntries(names.map((name) => [name, new Set()]));
  for (let seed = 0; seed < names.length; seed++) {
    const draws = names.map((name, index) => drawn(name, seed + index, 1, "own"));
    const here = names.filter((_, index) => draws[index].on.length === 1);
    const there = ofShard(names, leftToAnother(seed));
    assert.deepEqual([here.length, there.length], [1, 1], `seed ${seed}`);
    assert.notDeepEqual(here, there, `seed ${seed}`);
    for (const name of here) ran[name].add("here");
    for (const name of there) ran[name].add("there");
    assert.ok(draws.every(({ others }) => others === undefined));
  }
  for (const name of names) assert.equal(ran[name].size, 2, name);
});
