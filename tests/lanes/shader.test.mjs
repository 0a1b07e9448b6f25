// `npm run shader` prints a kernel's composed text, and says what there is where it has none.
// reads: crates
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { root } from "../../scripts/lib.mjs";
import { cargoProfile } from "./level.mjs";

// In the profile that the native lane compiles too.
function shader(...args) {
  const run = ["run", "--profile", cargoProfile, "--quiet", "--bin", "shader", "--", ...args];
  return spawnSync("cargo", run, { cwd: root, encoding: "utf8" });
}

test("npm run shader prints what is compiled", { timeout: 600_000 }, () => {
  const { status, stdout, stderr } = shader("rms_norm_forward", "--adapter", "NVIDIA");
  assert.equal(status, 0, stderr);
  assert.match(stdout, /fn rms_norm_forward\(/);
  assert.match(stdout, /variant subgroup/);
  assert.match(stdout, /const HIDDEN: u32 = /);
  const unknown = shader("no_such_kernel");
  assert.equal(unknown.status, 2);
  assert.match(unknown.stderr, /no kernel no_such_kernel; there are: .*\badamw_forward, /);
  assert.match(shader("rope_forward", "--adapter", "x").stderr, /no adapter x; there are: WebGPU/);
});
