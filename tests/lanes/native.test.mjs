import assert from "node:assert/strict";
import { test } from "node:test";
import { exitCode } from "../../scripts/lib.mjs";
import { nativeEnv } from "../../scripts/machine.mjs";
import { cargoProfile, full, laneTimeout } from "./level.mjs";

test("cargo test: the crate, and its kernels on native wgpu", {
  timeout: laneTimeout,
}, async () => {
  const built = ["--profile", cargoProfile, "--features", "testing"];
  const args = ["test", "--locked", "--quiet", ...built];
  // A full run takes long enough that each case should be seen to end.
  const runs = full
    ? [["--test", "kernels", "--", "--nocapture"]]
    : [["--test", "*", "--examples", "--bins", "--lib"], ["--doc"]];
  for (const more of runs) {
    const code = await exitCode("cargo", [...args, ...more], { env: nativeEnv() });
    assert.equal(code, 0, `cargo test ${more.join(" ")} ended with ${code}; its output is above`);
  }
});
