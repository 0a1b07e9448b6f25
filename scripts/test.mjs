// `npm test`: set-up, build, then every *.test.mjs under tests with Node's test runner. The native
// lane, `cargo test`, is one of them. Arguments select files: `npm test -- lanes` or `-- demo`.
// `npm run test:full` (`--full`): the kernel lanes, and Node's, each with every case of the products
// that the everyday cases sample; the public API's bodies, each whole in every host; the demo's panels, and the seconds
// to its first step; and all of what `npm test` draws by the seed.
import { relative } from "node:path";
import { run } from "node:test";
import { spec as Spec } from "node:test/reporters";
import { IN_FULL } from "../tests/draws.mjs";
import { freshSeed } from "../tests/random.mjs";
import { limited } from "./file-limit.mjs";
import { noteLeftOut } from "./left-out.mjs";
import { Failure, filesBelow, main, root, step } from "./lib.mjs";

/**
 * What compiles all the time, one core for each: two files at a time. With a third one `pkg/node` took 496 s instead
 * of 213. In this order, so that no core is idle at the end.
 */
const COMPILING = [
  "lanes/native",
  "pkg/firefox",
  "pkg/node.",
  "pkg/chromium",
  "lanes/chromium",
  "lanes/firefox",
];
const CORES = 2;

/** What runs by itself, one file after the other, and why. */
const ALONE = {
  "pkg/times.": "holds times of steps and readbacks to account",
  "pkg/worker-frames.": "holds tasks of the main thread to account",
  "pkg/demo.": "holds tasks of the main thread to account",
};

/**
 * A file that fails is repeated by itself, with the same seed: what fails again fails the run. What then passes
 * leans on the machine's load or on chance, and is named at the end. With more files than this nothing is
 * repeated, since no chance explains it.
 */
const REPEATED = 3;

/** Of the others at a time: a page that waits uses no core. Two keep two cores busy for 81 % of the time, three for 95 %. */
const SIDE_BY_SIDE = 3;

/** Seconds in which a file has to end. The longest takes six minutes on two cores. */
const FILE_SECONDS = 1800;

/** In a full run also what then holds an estimate of seconds, or tasks of the main thread, to account. */
const TIMED_IN_FULL = ["/pkg/demo-panels.", "/pkg/demo-tune."];

const aloneIn = (full) => (path) =>
  Object.keys(ALONE).some((part) => path.includes(`/${part}`)) ||
  (full && TIMED_IN_FULL.some((part) => path.includes(part)));
const rank = (path) => COMPILING.findIndex((part) => path.includes(part)) >>> 0;
const compiles = (path) => rank(path) < COMPILING.length;

function selected(full, wanted) {
  const whole = new RegExp(`^tests/(lanes/|pkg/(${IN_FULL.join("|")})[.])`);
  const files = filesBelow(["tests"]).filter(
    (path) =>
      (full ? whole.test(path) && /\.(test|full)\.mjs$/.test(path) : path.endsWith(".test.mjs")) &&
      (wanted.length === 0 || wanted.some((word) => path.includes(word))),
  );
  if (files.length === 0)
    throw new Failure(`no test file has ${wanted.join(" or ")} in its path`, 2);
  return files.toSorted((a, b) => rank(a) - rank(b));
}

/** Tests that were skipped, and those that another seed runs, as lines for the end. */
const [leftOut, undrawn] = [new Set(), new Set()];

/**
 * Runs test files in processes of their own and prints what they report. Gives each file's seconds, and the
 * files that failed. A file that does not end within `limit` seconds is ended and fails.
 */
async function runFiles(files, concurrency, limit) {
  step(`testing: ${files.length} files, ${concurrency} at a time`);
  const seconds = new Map();
  const failed = new Set();
  const stream = run({ files, concurrency, ...(limit && { timeout: (limit + 60) * 1000 }) });
  stream.on("test:fail", ({ file }) => failed.add(file));
  noteLeftOut(stream, leftOut, undrawn);
  for (const event of ["test:pass", "test:fail"]) {
    stream.on(event, ({ nesting, file, details }) => {
      if (nesting > 0) return;
      seconds.set(file, (seconds.get(file) ?? 0) + details.duration_ms / 1000);
    });
  }
  const report = stream.compose(new Spec());
  for await (const text of report) process.stdout.write(text);
  return { seconds, failed };
}

/** Repeats files that failed; gives those that fail again. */
async function repeat(failed, limit) {
  if (failed.length === 0 || failed.length > REPEATED) return failed;
  step(`repeating what failed, each file by itself, with seed ${process.env.TINYLOOM_SEED}`);
  const again = [...(await runFiles(failed, 1, limit)).failed];
  for (const file of failed.filter((file) => !again.includes(file))) {
    step(
      `${relative(root, file)} failed once and passed when it was repeated: it leans on load or on chance`,
    );
  }
  return again;
}

await main(async () => {
  const full = process.argv.includes("--full");
  const files = selected(
    full,
    process.argv.slice(2).filter((word) => word !== "--full"),
  );
  const { setup } = await import("./setup.mjs");
  const reference = files.some((path) => !path.includes("/lanes/"));
  await setup({ browsers: ["chromium", "firefox", "node"], native: true, reference });
  const { build } = await import("./build.mjs");
  await build({ page: true, job: !full, testing: true });
  // Whoever names a file of tests/pkg wants all of it, and not what a seed draws.
  if (files.length < selected(full, []).length) process.env.TINYLOOM_WHOLE = "1";
  if (full) process.env.TINYLOOM_LEVEL = "full";
  else {
    // Once: several files use target/package and its tarball at the same time.
    const { pack, PACKED } = await import("./pack.mjs");
    process.env[PACKED] = (await pack()).tarball;
  }
  const limit = full ? undefined : FILE_SECONDS;
  if (limit) Object.assign(process.env, limited(limit));
  process.env.TINYLOOM_SEED ||= String(freshSeed());
  // One lane may leave to the other what both can run.
  const runs = (lane) => files.some((path) => path.endsWith(`lanes/${lane}.test.mjs`));
  if (runs("native") && runs("firefox")) process.env.TINYLOOM_LANES = "all";
  const times = [];
  const failed = [];
  const alone = aloneIn(full);
  for (const [group, concurrency] of [
    [files.filter(compiles), CORES],
    [files.filter((path) => !compiles(path) && !alone(path)), SIDE_BY_SIDE],
    [files.filter(alone), 1],
  ]) {
    if (group.length === 0) continue;
    const ended = await runFiles(group, concurrency, limit);
    times.push(...ended.seconds);
    failed.push(...ended.failed);
  }
  const slowest = times.toSorted(([, a], [, b]) => b - a).slice(0, 20);
  step("seconds per file, of those that took longest:");
  for (const [file, seconds] of slowest)
    step(`${seconds.toFixed(1).padStart(7)} ${relative(root, file)}`);
  const again = full ? failed : await repeat(failed, limit);
  if (again.length > 0) process.exitCode = 1;
  step(
    again.length > 0
      ? `failed: ${again.map((file) => relative(root, file)).join(", ")}; TINYLOOM_SEED=${process.env.TINYLOOM_SEED}`
      : `all ${files.length} files passed; TINYLOOM_SEED=${process.env.TINYLOOM_SEED}`,
  );
  if (undrawn.size > 0) step(`${undrawn.size} long tests were left to other seeds:`);
  for (const line of undrawn) step(`  ${line}`);
  step(leftOut.size > 0 ? `${leftOut.size} checks were left out:` : "no check was left out");
  for (const line of leftOut) step(`  ${line}`);
});
process.exit(); // what a file that was ended has left open does not keep this process
