// `npm test`: runs the test files under tests whose content, or that of what they depend on, has not passed before, with
// Node's test runner. Set-up and build come first where any file is to run. docs/testing.md tells of keys and cores.
//
//   npm test [PART OF A PATH …]   what has changed; files that are named run whole, whatever has passed
//   npm run test:rest [PART …]    whatever has not passed whole
//   npm run test:full [PART …]    everything, with the full products of the kernel lanes
//   npm run test:timed            the tests that hold clocks to account
//   npm test -- --list            names the files that would run
import { existsSync, rmSync } from "node:fs";
import { join, relative } from "node:path";
import { run } from "node:test";
import { spec as Spec } from "node:test/reporters";
import { pathToFileURL } from "node:url";
import { limited } from "./file-limit.mjs";
import { Failure, filesBelow, main, root, step, target } from "./lib.mjs";
import { setup } from "./setup.mjs";

const [, , ...words] = process.argv;
const mode = ["rest", "full", "timed"].find((name) => words.includes(`--${name}`)) ?? "everyday";
const wanted = words.filter((word) => !word.startsWith("--"));

/**
 * What compiles all the time, one core for each: two files at a time. With a third one `api/node` took 496 s instead
 * of 213. In this order, so that no core is idle at the end.
 */
const COMPILING = [
  "lanes/native",
  "api/firefox",
  "api/node.",
  "api/chromium",
  "lanes/chromium",
  "lanes/firefox",
];
const CORES = 2;

/** Of the others at a time: a page that waits uses no core. Two keep two cores busy for 81 % of the time, three for 95 %. */
const SIDE_BY_SIDE = 3;

/** Seconds in which a file has to end in an everyday run: the lanes have some sixty minutes. */
const FILE_SECONDS = 4500;

/** Clocks of these files are held to account by `npm run test:timed`, besides those that end with `.timed.mjs`. */
const TIMED = ["/page/demo.test", "/page/demo-tune.test"];

const rank = (path) => COMPILING.findIndex((part) => path.includes(part)) >>> 0;
const compiles = (path) => rank(path) < COMPILING.length;

/** The files of the mode that the words select. */
function selected() {
  const of = {
    timed: (path) => path.endsWith(".timed.mjs") || TIMED.some((part) => path.includes(part)),
    full: (path) => /\.(test|full)\.mjs$/.test(path),
  };
  const belongs = of[mode] ?? ((path) => path.endsWith(".test.mjs"));
  const files = filesBelow(["tests"]).filter(
    (path) => belongs(path) && (wanted.length === 0 || wanted.some((word) => path.includes(word))),
  );
  if (files.length > 0) return files.toSorted((a, b) => rank(a) - rank(b));
  throw new Failure(`no test file has ${wanted.join(" or ")} in its path`, 2);
}

/**
 * What is to run of the files: those with keys of their own, in NAME.keys.mjs beside them, say so; the key of another is
 * that of its content. Files of tests/gate always run.
 *
 * @returns `own`: files that always run, or have keys of their own; `tests`: the others, as `openTests`.
 */
async function changed(files) {
  const { fileKey } = await import("../tests/gate/inputs.mjs");
  const { openTests } = await import("../tests/gate/passed.mjs");
  const [own, others] = [[], []];
  for (const path of files) {
    if (path.startsWith("tests/gate/")) own.push(path);
    else if (!existsSync(keysOf(path)))
      others.push({ name: path, group: path, keyWith: await fileKey(path) });
    else if ((await stateOf(path)).run) own.push(path);
  }
  return { own, tests: openTests("files", others) };
}

/** The module that says which of a file's tests run, where these have keys of their own. */
const keysOf = (path) => join(root, path.replace(/\.(test|full|timed)\.mjs$/, ".keys.mjs"));
const stateOf = async (path) => (await import(pathToFileURL(keysOf(path)).href)).state();

/** Files that are named, and all of a full run, run whatever has passed. So do clocks. */
const everything = (files) => ({
  own: files,
  tests: { run: [], left: 0, passed() {}, ended() {} },
});
const named = wanted.length > 0 && mode === "everyday";
const whole = named || mode === "full" || mode === "timed";
const GATE = { everyday: named ? "whole" : "everyday", rest: "rest", full: "full", timed: "whole" };

const counts = { passed: 0, failed: 0, skipped: 0 };
const skipped = new Set();

/**
 * Runs test files in processes of their own and prints what they report. Gives each file's seconds, and the
 * files that failed. A file that does not end within `limit` seconds is ended and fails.
 *
 * @param heard - hears of each file that ends well.
 */
async function runFiles(files, concurrency, limit, heard) {
  step(`testing: ${files.length} files, ${concurrency} at a time`);
  const seconds = new Map();
  const failed = new Set();
  // A file's own event has its path as it is given here.
  const paths = files.map((file) => join(root, file));
  const stream = run({ files: paths, concurrency, ...(limit && { timeout: (limit + 60) * 1000 }) });
  for (const event of ["test:pass", "test:fail"]) {
    stream.on(event, ({ name, skip }) => {
      counts[skip ? "skipped" : event === "test:pass" ? "passed" : "failed"] += 1;
      if (skip) skipped.add(`${name}: ${skip === true ? "no reason" : skip}`);
    });
  }
  // The file itself completes once, under its own path. Its tests may be written elsewhere.
  stream.on("test:complete", ({ name, file, details }) => {
    if (name !== file) return;
    seconds.set(file, details.duration_ms / 1000);
    if (details.passed) heard(relative(root, file));
    else failed.add(file);
  });
  const report = stream.compose(new Spec());
  for await (const text of report) process.stdout.write(text);
  return { seconds, failed };
}

await main(async () => {
  const files = selected();
  // Keys have the versions of browsers and drivers, so these come first.
  await setup({ rust: false, browsers: ["chromium", "firefox", "node"], native: true });
  delete process.env.TINYLOOM_CORE;
  process.env.TINYLOOM_GATE = GATE[mode];
  process.env.TINYLOOM_TIMED = mode === "timed" ? "1" : "";
  const { own, tests } = whole ? everything(files) : await changed(files);
  const some = tests.run.map(({ name }) => name);
  const cores = tests.run.filter(({ core }) => core).length;
  const all = own.concat(some).toSorted((a, b) => rank(a) - rank(b));
  step(
    `${all.length} of ${files.length} test files run, ${cores} of them their core; the others, or their core, have passed as they are`,
  );
  if (words.includes("--list")) {
    for (const path of all) process.stdout.write(`${path}\n`);
    return;
  }
  await prepare(await needsOf(all));
  if (cores > 0) process.env.TINYLOOM_CORE = "1";
  const { madeIn } = await import("../tests/gate/made.mjs");
  rmSync(join(target, "made"), { recursive: true, force: true });
  const limit = GATE[mode] === "everyday" ? FILE_SECONDS : undefined;
  if (limit) Object.assign(process.env, limited(limit));
  const guard = pathToFileURL(join(root, "tests", "gate", "guard.mjs"));
  process.env.NODE_OPTIONS = `${process.env.NODE_OPTIONS ?? ""} --import=${guard}`;
  const [times, failed] = [[], []];
  for (const [group, concurrency] of [
    [all.filter((path) => compiles(path) && mode !== "timed"), CORES],
    [all.filter((path) => !compiles(path) && mode !== "timed"), SIDE_BY_SIDE],
    [all.filter(() => mode === "timed"), 1],
  ]) {
    if (group.length === 0) continue;
    const heard = (path) => some.includes(path) && tests.passed(path, madeIn(path));
    const ended = await runFiles(group, concurrency, limit, heard);
    times.push(...ended.seconds);
    failed.push(...ended.failed);
  }
  // Of files that are named the others' keys stay.
  if (failed.length === 0 && wanted.length === 0) tests.ended();
  const left = [["files", tests.left]];
  for (const path of files.filter((path) => existsSync(keysOf(path))))
    left.push([path, (await stateOf(path)).left]);
  summary(times, failed, left);
});

/** Whether files need what is built, and the reference's Python. */
async function needsOf(files) {
  const { closureOf } = await import("../tests/gate/inputs.mjs");
  const needs = { build: false, reference: false };
  for (const path of files.filter((path) => !path.startsWith("tests/gate/"))) {
    const { built, modules } = await closureOf(path);
    needs.build ||= built;
    needs.reference ||= modules.includes("scripts/reference.mjs");
  }
  return needs;
}

/** Set-up, build and package, which several files use at the same time. */
async function prepare({ build: wanted, reference }) {
  await setup({ rust: wanted, reference });
  if (!wanted) return;
  const { build } = await import("./build.mjs");
  await build({ page: true, job: true, testing: true });
  const { pack, PACKED } = await import("./pack.mjs");
  process.env[PACKED] = (await pack()).tarball;
}

function summary(times, failed, left) {
  const slowest = times.toSorted(([, a], [, b]) => b - a).slice(0, 20);
  if (slowest.length > 0) step("seconds per file, of those that took longest:");
  for (const [file, seconds] of slowest)
    step(`${seconds.toFixed(1).padStart(7)} ${relative(root, file)}`);
  for (const line of skipped) step(`not run: ${line}`);
  for (const [what, count] of left)
    if (count > 0)
      step(`${what}: ${count} have passed in their core alone; npm run test:rest runs the rest`);
  if (failed.length > 0) {
    process.exitCode = 1;
    step(`failed: ${failed.map((file) => relative(root, file)).join(", ")}`);
  }
  const { passed, failed: bad, skipped: skips } = counts;
  process.stdout.write(`${passed} passed, ${bad} failed, ${skips} skipped\n`);
}
process.exit(); // what a file that was ended has left open does not keep this process
