// reads: tests/lanes/matrices.mjs crates
import assert from "node:assert/strict";
import { test } from "node:test";
import { exitCode } from "../../scripts/lib.mjs";

test("kernels with subgroup matrices before Dawn's compiler", { timeout: 300_000 }, async () => {
  const code = await exitCode(process.execPath, ["tests/lanes/matrices.mjs"], {});
  assert.equal(code, 0, `it ended with ${code}; its output is above`);
});
