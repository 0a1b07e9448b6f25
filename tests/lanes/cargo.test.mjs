// The crates' own tests, and those of their folders `tests` but the kernel cases, which native.test.mjs runs.
// reads: src crates examples README.md#code Cargo.toml
import assert from "node:assert/strict";
import { existsSync, readdirSync } from "node:fs";
import { basename, join } from "node:path";
import { test } from "node:test";
import { exitCode, root } from "../../scripts/lib.mjs";
import { nativeEnv } from "../../scripts/machine.mjs";
import { cargoProfile, laneTimeout } from "./level.mjs";

/** Test crates of cargo: files of a crate's `tests`, and folders of it with a main.rs. */
const crates = ["kernels", "testing"]
  .map((name) => join(root, "crates", name, "tests"))
  .flatMap((tests) => readdirSync(tests).map((name) => join(tests, name)))
  .filter((path) => path.endsWith(".rs") || existsSync(join(path, "main.rs")))
  .map((path) => basename(path, ".rs"))
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
