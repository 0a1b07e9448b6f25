import assert from "node:assert/strict";
import { test } from "node:test";
import { exitCode } from "../../scripts/lib.mjs";
import { nativeEnv } from "../../scripts/machine.mjs";
import { full, laneTimeout } from "./level.mjs";

test("cargo test: the crate, and its kernels on native wgpu", {
  timeout: laneTimeout,
}, async () => {
  const args = ["test", "--release", "--locked", "--quiet", "--features", "testing"];
  // A full run takes long enough that each case should be seen to end.
  if (full) args.push("--test", "kernels", "--", "--nocapture");
  const code = await exitCode("cargo", args, { env: nativeEnv() });
  assert.equal(code, 0, `cargo test ended with ${code}; its output is above`);
});
