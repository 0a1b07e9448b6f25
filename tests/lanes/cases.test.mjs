// The core of a kernel lane.
import assert from "node:assert/strict";
import { test } from "node:test";
import { coreOfCases } from "./cases.mjs";

const kernel = (name, jobs, ...kernels) => ({ name, jobs, kernels, session: false });
const session = (name) => ({ name, jobs: 0, kernels: [], session: true });

test("each kernel is in the core once, in the cheaper of two cases", () => {
  const cases = [
    kernel("dear", 100, "norm: tree", "norm: subgroup"),
    kernel("cheap", 10, "norm: tree", "norm: subgroup"),
    kernel("other", 10, "loss: tree"),
    kernel("again", 5, "loss: tree"),
  ];
  assert.deepEqual([...coreOfCases(cases)].sort(), ["again", "cheap"]);
});

test("some of the sessions are in the core, the same each time", () => {
  const cases = Array.from({ length: 20 }, (_, i) => session(`session ${i}`));
  assert.deepEqual([...coreOfCases(cases)], ["session 0", "session 8", "session 16"]);
  assert.deepEqual([...coreOfCases(cases)], [...coreOfCases(cases)]);
});
