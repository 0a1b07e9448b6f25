// A lane of `npm run test:full` alone: the kernels in Node with Dawn.
import assert from "node:assert/strict";
import { test } from "node:test";
import { exitCode } from "../../scripts/lib.mjs";
import { dawnEnv } from "../../scripts/machine.mjs";
import { laneTimeout } from "./level.mjs";

test("kernels in Node with Dawn", { timeout: laneTimeout }, async () => {
  const args = ["tests/lanes/node.mjs", "--full"];
  const code = await exitCode(process.execPath, args, { env: dawnEnv() });
  assert.equal(code, 0, `the lane ended with ${code}; its output is above`);
});
