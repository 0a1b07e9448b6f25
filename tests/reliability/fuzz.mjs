// Coverage-guided fuzzing of what reads files in the crate: fuzz/targets, each for so many seconds from the seeds in
// fuzz/seeds. Tokenizers, which are TypeScript, and whole files through the API are in the part `hostile`.
import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Failure, root, step, target } from "../../scripts/lib.mjs";
import { keep } from "./results.mjs";

/** Seconds of each target, and how many run at a time: each has one thread. */
const [SECONDS, SIDE_BY_SIDE] = [120, 2];
const FOLDER = join(root, "fuzz");

/** One target, to its end or to the first finding. */
async function attack(name, seconds, seed) {
  const seeds = join(FOLDER, "seeds", name);
  const [corpus, artifacts] = ["corpus", "artifacts"].map((one) => join(target, "fuzz", one, name));
  for (const folder of [corpus, artifacts]) mkdirSync(folder, { recursive: true });
  const before = new Set(readdirSync(artifacts));
  const own = [`-max_total_time=${seconds}`, `-seed=${seed}`, `-artifact_prefix=${artifacts}/`];
  const limits = [
    "-timeout=10",
    "-rss_limit_mb=1024",
    "-malloc_limit_mb=256",
    "-print_final_stats=1",
  ];
  const build = ["--target-dir", join(target, "fuzz", "build")];
  // Safe Rust reads the files: a sanitizer would find nothing more, and takes most of the time.
  const args = [
    "+nightly",
    "fuzz",
    "run",
    "--sanitizer=none",
    ...build,
    name,
    corpus,
    seeds,
    "--",
    ...own,
    ...limits,
  ];
  const child = spawn("cargo", args, { cwd: root, stdio: ["ignore", "ignore", "pipe"] });
  let printed = "";
  child.stderr.on("data", (text) => {
    printed = `${printed}${text}`.slice(-200_000);
  });
  const code = await new Promise((done) => child.once("close", done));
  const number = (pattern) => Number([...printed.matchAll(pattern)].at(-1)?.[1] ?? Number.NaN);
  const executed = number(/stat::number_of_executed_units: *(\d+)/g);
  const found = readdirSync(artifacts).filter((file) => !before.has(file));
  const wrong = found.map((file) => {
    const why = /panicked at[^\n]*\n[^\n]*|ERROR: libFuzzer: [^\n]*/.exec(printed)?.[0] ?? "";
    return `${file}: ${why}: ${readFileSync(join(artifacts, file)).toString("base64").slice(0, 2000)}`;
  });
  if (code !== 0 && wrong.length === 0) wrong.push(`ended with ${code}: ${printed.slice(-600)}`);
  const coverage = number(/\bcov: (\d+)/g);
  return { target: name, seeds: readdirSync(seeds), seed, seconds, executed, coverage, wrong };
}

/** Every target; the result as JSON and a line each. */
export async function fuzz({ seconds = SECONDS, seed = Date.now() % 1e6 } = {}) {
  if (spawnSync("cargo", ["+nightly", "fuzz", "--version"]).status !== 0) {
    throw new Failure(
      "fuzz: install it by `rustup toolchain install nightly` and `cargo install cargo-fuzz`",
    );
  }
  const targets = readdirSync(join(FOLDER, "targets")).map((file) => file.replace(/\.rs$/, ""));
  const rows = [];
  for (let at = 0; at < targets.length; at += SIDE_BY_SIDE) {
    const some = targets.slice(at, at + SIDE_BY_SIDE);
    step(`fuzzing ${some.join(" and ")}`);
    rows.push(...(await Promise.all(some.map((name) => attack(name, seconds, seed)))));
  }
  for (const row of rows) {
    console.log(
      `fuzz: ${row.target}, seed ${seed}, from ${row.seeds.join(", ")}: ${row.executed} inputs in ${seconds} s, ` +
        `${row.coverage} edges: ${row.wrong.length} findings`,
    );
    for (const one of row.wrong) console.log(`  ${one}`);
  }
  keep("fuzz", "native", { description: "no-gpu" }, { seed, rows }, { short: seconds < SECONDS });
  return rows.every(({ wrong }) => wrong.length === 0);
}
