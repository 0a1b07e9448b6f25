import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { root, target } from "../../scripts/lib.mjs";
import { nativeEnv } from "../../scripts/machine.mjs";
import { openCases } from "./cases.mjs";
import { cargoProfile, endProgress, full, laneTimeout, seed, showProgress } from "./level.mjs";

const folder = join(target, "lanes");

/** Runs `cargo test --test kernels` with these arguments; hears each line of its output. */
function kernels(args, heard = () => {}) {
  const built = ["--profile", cargoProfile, "--features", "testing", "--test", "kernels"];
  const level = full ? "full" : "everyday";
  const child = spawn("cargo", ["test", "--locked", "--quiet", ...built, "--", ...args], {
    cwd: root,
    env: {
      ...process.env,
      ...nativeEnv(),
      TINYLOOM_SEED: String(seed),
      TINYLOOM_LEVEL: level,
      TINYLOOM_CASE: "",
    },
    stdio: ["ignore", "pipe", "inherit"],
  });
  createInterface({ input: child.stdout }).on("line", heard);
  return new Promise((done, fail) => child.on("error", fail).on("close", done));
}

/** What each case depends on, by its name. */
async function list() {
  mkdirSync(folder, { recursive: true });
  const path = join(folder, "native.jsonl");
  assert.equal(await kernels(["list", path]), 0, "the cases were not listed");
  const [, ...lines] = readFileSync(path, "utf8").trim().split("\n");
  return new Map(lines.map((line) => JSON.parse(line)).map((one) => [one.name, [one]]));
}

test("kernels on native wgpu", { timeout: laneTimeout }, async (t) => {
  const listed = await list();
  const { run, left, passed, ended } = await openCases("native", [...listed.keys()], (names) =>
    names.map((name) => listed.get(name)),
  );
  t.diagnostic(
    `${run.length} cases run; ${left} have not passed whole: npm run test:rest -- lanes`,
  );
  if (run.length > 0) {
    const path = join(folder, "native.txt");
    writeFileSync(path, run.map(({ name, core }) => `${core ? "own" : "run"}\t${name}\n`).join(""));
    const failed = [];
    let count = 0;
    const code = await kernels(["run", path], (line) => {
      if (!line.startsWith("case ")) return void t.diagnostic(line);
      const report = JSON.parse(line.slice("case ".length));
      count += 1;
      showProgress("native", `${count}/${run.length} ${report.name}`);
      if (report.ok) passed(report.name);
      else failed.push(`${report.name}: ${report.detail}`);
    });
    endProgress();
    assert.equal(failed.length, 0, `${failed.length} of ${count} failed:\n${failed.join("\n")}`);
    assert.deepEqual([code, count], [0, run.length], "the lane did not run to its end");
  }
  ended();
});
