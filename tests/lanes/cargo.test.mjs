// The crate's own tests, and those of tests/*.rs but the kernel cases, which native.test.mjs runs.
// reads: src tests/golden tests/plans tests/rooms examples README.md#code build.rs Cargo.toml scripts/shader.rs
// reads: tests/*.rs
import assert from "node:assert/strict";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { exitCode, root } from "../../scripts/lib.mjs";
import { nativeEnv } from "../../scripts/machine.mjs";
import { cargoProfile, laneTimeout } from "./level.mjs";

/** Test crates of cargo: files of tests, and folders of it with a main.rs. */
const crates = readdirSync(join(root, "tests"))
  .filter((name) => name.endsWith(".rs") || existsSync(join(root, "tests", name, "main.rs")))
  .map((name) => name.replace(/\.rs$/, ""))
  .filter((name) => name !== "kernels");

const built = ["test", "--locked", "--quiet", "--profile", cargoProfile, "--features", "testing"];

test("cargo test", { timeout: laneTimeout }, async () => {
  assert.ok(crates.length >= 5, `test crates: ${crates.join(", ")}`);
  const every = ["--lib", "--bins", "--examples", ...crates.flatMap((name) => ["--test", name])];
  for (const args of [every, ["--doc"]]) {
    const code = await exitCode("cargo", [...built, ...args], { env: nativeEnv() });
    assert.equal(code, 0, `cargo test ${args.join(" ")} ended with ${code}; its output is above`);
  }
});
