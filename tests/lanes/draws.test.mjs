// What the lanes in browsers draw by the seed, without a GPU: nothing is left out for ever.
import assert from "node:assert/strict";
import { test } from "node:test";
import { drawn } from "./lane.mjs";

const DEVICES = 2;
/** Seeds in a row among which every draw comes up. */
const RUNS = 12;

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
  const once = { on: [6, 6], others: [3, 3] };
  const slowest = { on: [2, 2], others: [0, 0] };
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

test("where another lane runs every case on the same driver, every second one runs", () => {
  for (const name of ["matvec", "model wide: loss and gradients with split products"]) {
    const runs = Array.from({ length: RUNS }, (_, seed) => drawn(name, seed, 1, "own"));
    assert.equal(runs.filter(({ on }) => on.length === 1).length, RUNS / 2, name);
    assert.ok(
      runs.every(({ others }) => others === undefined),
      name,
    );
  }
});
