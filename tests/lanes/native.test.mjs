import assert from "node:assert/strict";
import { test } from "node:test";
import { exitCode } from "../../scripts/lib.mjs";
import { nativeEnv, softwareOnly } from "../../scripts/machine.mjs";
import { leftToAnother } from "./lane.mjs";
import { cargoProfile, firstSeed, full, laneTimeout, shard, wanted } from "./level.mjs";

// Firefox's lane has the same driver on a CPU, whose compiler takes most of the time: where both lanes run, each runs its
// own part of the cases.
const together = process.env.TINYLOOM_LANES === "all";
const shared = softwareOnly() && together && !full && !wanted && shard[1] === 1;

test("cargo test: the crate, and its kernels on native wgpu", {
  timeout: laneTimeout,
}, async (t) => {
  const built = ["--profile", cargoProfile, "--features", "testing"];
  const args = ["test", "--locked", "--quiet", ...built];
  const env = nativeEnv();
  if (shared) {
    env.TINYLOOM_SHARD = leftToAnother(firstSeed).join("/");
    t.diagnostic(
      `cases ${env.TINYLOOM_SHARD} of the kernels; Firefox's lane and other seeds run the rest`,
    );
  }
  // A full run takes long enough that each case should be seen to end.
  const runs = full
    ? [
        ["--test", "selection"],
        ["--test", "kernels", "--", "--nocapture"],
      ]
    : [["--test", "*", "--examples", "--bins", "--lib"], ["--doc"]];
  for (const more of runs) {
    const code = await exitCode("cargo", [...args, ...more], { env });
    assert.equal(code, 0, `cargo test ${more.join(" ")} ended with ${code}; its output is above`);
  }
});
