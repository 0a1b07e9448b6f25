import assert from "node:assert/strict";
import { test } from "node:test";
import { exitCode } from "../../scripts/lib.mjs";
import { nativeEnv } from "../../scripts/machine.mjs";

test("cargo test: the crate, and its kernels on native wgpu", { timeout: 1_500_000 }, async () => {
  const args = ["test", "--release", "--locked", "--quiet", "--features", "testing"];
  const code = await exitCode("cargo", args, { env: nativeEnv() });
  assert.equal(code, 0, `cargo test ended with ${code}; its output is above`);
});
