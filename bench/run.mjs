// npm run bench [-- [models|start|growth|attention|matmul|token|cache|batch|precision|peers|serving] --browser chromium|firefox|node --only TEXT --steps N
//   --seeds N --limits adapter|default --no-subgroups --published --profile --text FILE --out FOLDER
//   --weights FOLDER --seconds N --continue FILE]
// Measures tinyloom on this machine's GPU from the built files in pkg/dist (and, for kernels alone,
// target/testing-wasm; for precision, www/dist-node; for peers and serving, bench/peers/dist): no install, no network.
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { commandLine } from "../scripts/lib.mjs";
import { BUNDLED, tasks } from "./peers.mjs";
import { picks } from "./picks.mjs";
import { RESULTS, writeResults } from "./results.mjs";
import { KERNELS, runSuite } from "./run-suite.mjs";
import { SERVING } from "./serving/rows.mjs";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
/** Steps of the suites that train to an end; others measure so many. */
const STEPS = { cache: 300, precision: 1000 };
const { values, positionals } = commandLine({
  allowPositionals: true,
  options: {
    browser: { type: "string", default: "chromium" },
    only: { type: "string", default: "" },
    steps: { type: "string" },
    text: { type: "string" },
    seeds: { type: "string" },
    profile: { type: "boolean", default: false },
    limits: { type: "string", default: "adapter" },
    "no-subgroups": { type: "boolean", default: false },
    published: { type: "boolean", default: false },
    out: { type: "string", default: RESULTS },
    weights: { type: "string" },
    seconds: { type: "string", default: "Infinity" },
    continue: { type: "string" },
  },
});
const options = {
  suite: positionals[0] ?? "models",
  only: values.only,
  steps: Number(values.steps ?? STEPS[positionals[0]] ?? 40),
  profile: values.profile,
  limits: values.limits,
  subgroups: !values["no-subgroups"],
  published: values.published,
};

const PEERS = { peers: BUNDLED, serving: SERVING };
const SUITES = [
  ...["models", "start", "growth", ...KERNELS, "cache", "batch", "precision"],
  ...Object.keys(PEERS),
];
/** Milliseconds that one row of the peers may take. */
const PATIENCE = 600_000;
if (!SUITES.includes(options.suite)) {
  console.error(`there is no suite ${options.suite}; there are ${SUITES.join(", ")}`);
  process.exit(2);
}
if (!options.subgroups && !KERNELS.includes(options.suite)) {
  console.error(`--no-subgroups is for the suites of kernels: ${KERNELS.join(", ")}`);
  process.exit(2);
}
if (options.suite === "cache" && !values.text) {
  console.error("the suite cache trains on a text; give one by --text FILE");
  process.exit(2);
}
if (values.text) options.text = readFileSync(values.text, "utf8");
if (values.seeds) {
  options.seeds = Number(values.seeds);
  if (!(Number.isInteger(options.seeds) && options.seeds > 0)) {
    console.error(`--seeds is ${values.seeds}, not a whole number from 1 on`);
    process.exit(2);
  }
}
if (options.suite in PEERS && values.browser === "node") {
  console.error(`the suite ${options.suite} runs in browsers alone`);
  process.exit(2);
}
if (options.suite === "serving" && (!values.weights || values.browser !== "chromium")) {
  console.error("the suite serving runs in Chromium; give its weights by --weights FOLDER");
  process.exit(2);
}
need(["pkg/dist/tinyloom_bg.wasm"], "bench/build.mjs");
if (!(options.suite in PEERS)) need(["target/testing-wasm/tinyloom_bg.wasm"], "bench/build.mjs");
if (options.suite === "precision") need(["www/dist-node/job.js"], "bench/build.mjs");
if (options.suite in PEERS) {
  const bundles = PEERS[options.suite].map((peer) => `bench/peers/dist/${peer}.js`);
  need(bundles, "bench/peers/build.mjs");
}
const measured = await measureSuite(values.browser);
const label = measured.software ? " (software adapter: a regression guard, not a speed)" : "";
console.log(`adapter: ${Object.values(measured.adapter).filter(Boolean).join(" ")}${label}`);
if (options.suite === "attention" || options.suite === "matmul") printPicks(measured.results);
const parts = [
  options.suite,
  ...(values.limits === "adapter" ? [] : [values.limits]),
  ...(options.suite === "precision" && options.text ? ["seed"] : []),
  ...(options.subgroups ? [] : ["no-subgroups"]),
  ...(options.suite === "models" && measured.features.subgroupMatrix ? ["matrices"] : []),
];
writeResults(values.out, values.browser, parts.join("-"), measured);
process.exit(0);

/** Ends the run unless these files were built. */
function need(files, script) {
  const missing = files.find((file) => !existsSync(join(root, file)));
  if (missing === undefined) return;
  console.error(`${missing} is missing; run: node ${script}`);
  process.exit(1);
}

function measureSuite(browser) {
  if (options.suite === "serving") return inFreshBrowsers();
  return browser === "node" ? inNode() : inBrowser(browser);
}

/** The suite `serving`: the rows of --continue are taken over, and after --seconds none begins. */
async function inFreshBrowsers() {
  const { lineOf, serving } = await import("./serving/run.mjs");
  const { weights, only, continue: earlier } = values;
  const taken = earlier && JSON.parse(readFileSync(earlier, "utf8")).results;
  const settings = { weights, only, until: Number(values.seconds), taken };
  return serving(settings, (row) => console.log(lineOf(row)));
}

function print(result) {
  if (result.note) return console.log(result.note);
  if (result.kernel) return printKernel(result);
  const { workload, peer, gpuBytes, dispatches } = result;
  const parts = [...(peer ? [peer.padEnd(10)] : []), workload.padEnd(14)];
  const add = (value, text) => value !== undefined && parts.push(text(value));
  add(result.milliseconds, (ms) => `${ms.toFixed(2)} ms`);
  add(result.pipelinedMilliseconds, (ms) => `pipelined ${ms.toFixed(2)} ms`);
  add(result.microseconds, (us) => `${us.toFixed(0)} us`);
  add(result.tokensPerSecond, (rate) => `${rate.toFixed(0)} tokens/s`);
  add(result.teraflops, (rate) => `${rate.toFixed(1)} TFLOP/s`);
  add(result.gigabytesPerSecond, (rate) => `${rate.toFixed(0)} GB/s of weights`);
  add(result.shareOfPeak, (part) => `${(100 * part).toFixed(0)} % of the peak`);
  add(result.shareOfCopy, (part) => `${(100 * part).toFixed(0)} % of a copy`);
  add(result.firstLoss, (loss) => `loss ${loss.toFixed(3)} -> ${result.lastLoss.toFixed(3)}`);
  if (result.falls === false) parts.push("DOES NOT COUNT: the loss did not fall");
  add(result.refused, (message) => `refused: ${message}`);
  add(result.coldMilliseconds, (ms) => `cold ${ms.toFixed(0)} ms`);
  add(result.startMilliseconds, (ms) => `${ms.toFixed(0)} ms:`);
  add(result.stages, (stages) =>
    Object.entries(stages)
      .map(([stage, ms]) => `${stage} ${ms.toFixed(0)}`)
      .join(", "),
  );
  add(result.microsecondsPerGigaflop, (us) => `${us.toFixed(1)} us per GFLOP`);
  add(result.wasmBytes, (bytes) => `wasm ${(bytes / 1e6).toFixed(1)} MB`);
  add(dispatches, (count) => `${count} dispatches`);
  add(gpuBytes, (bytes) => `${(bytes / 1e6).toFixed(1)} MB`);
  console.log(parts.join("  "));
  for (const row of result.profile ?? []) {
    const rate = row.microseconds > 0 ? (row.flops / row.microseconds / 1e6).toFixed(2) : "-";
    console.log(
      `  ${row.microseconds.toFixed(0).padStart(8)} us ${rate.padStart(7)} TFLOP/s ${String(row.count).padStart(4)}x ${row.key} ${row.grid}`,
    );
  }
}

/** The picks that are farthest behind the fastest. */
function printPicks(results) {
  const all = picks(results);
  const beyond = all.filter(({ behind }) => behind > 0.1).length;
  console.log(
    `${all.length} picks, ${beyond} of them more than 10 % behind the fastest; the worst:`,
  );
  for (const { what, behind, note } of all.slice(0, 5))
    console.log(`${(100 * behind).toFixed(1).padStart(6)} %  ${what}  ${note}`);
}

function printKernel(row) {
  if (row.m !== undefined) return printProduct(row);
  const { kernel, variant, picked, tokens, heads, kvHeads, headDim, microseconds } = row;
  const rate =
    row.teraflops === undefined
      ? `${row.gigabytesPerSecond.toFixed(0).padStart(7)} GB/s   `
      : `${row.teraflops.toFixed(2).padStart(7)} TFLOP/s`;
  console.log(
    `${kernel.padEnd(30)} ${`${heads}/${kvHeads} x ${headDim}`.padEnd(12)} ${String(tokens).padStart(6)} ` +
      `${microseconds.toFixed(1).padStart(9)} us ${rate} ${picked ? "*" : " "} ${variant}`,
  );
}

function printProduct({ kernel, variant, picked, m, n, k, microseconds, ...row }) {
  const readback =
    row.readbackMilliseconds === undefined
      ? ""
      : `  (${((2 * m * n * k) / row.readbackMilliseconds / 1e9).toFixed(2)} TFLOP/s from submit to readback)`;
  console.log(
    `${kernel.padEnd(15)} ${`${m}x${n}x${k}`.padEnd(16)} ${microseconds.toFixed(1).padStart(9)} us ` +
      `${row.teraflops.toFixed(2).padStart(7)} TFLOP/s ${picked ? "*" : " "} ${variant}${readback}`,
  );
}

async function inNode() {
  const { create } = await import("webgpu");
  const gpu = create(["disable-dawn-features=timestamp_quantization"]);
  const built = (path) => import(pathToFileURL(join(root, path)).href);
  const load = {
    library: async () => ({
      ...(await built("pkg/dist/index.js")),
      internal: await built("pkg/dist/internal.js"),
    }),
    job: () => built("www/dist-node/job.js"),
    testing: async () => {
      const { prepareHost } = await built("pkg/dist/host.js");
      await prepareHost(gpu);
      const testing = await built("target/testing-wasm/tinyloom.js");
      const wasm = readFileSync(join(root, "target/testing-wasm/tinyloom_bg.wasm"));
      await testing.default({ module_or_path: wasm });
      return testing;
    },
  };
  return runSuite({ ...options, beforeTuning: forgetTuning }, gpu, load, print);
}

/** What tuning remembers is for this run alone; drivers keep their own caches from before. */
function forgetTuning() {
  const caches = mkdtempSync(join(tmpdir(), "tinyloom-bench-"));
  process.on("exit", () => rmSync(caches, { recursive: true, force: true }));
  process.env.XDG_CACHE_HOME = caches;
}

async function inBrowser(kind) {
  const { serve } = await import("../scripts/server.mjs");
  const { launch } = await import("./browser.mjs");
  const server = await serve({
    "/blank.html": Buffer.from(
      '<!doctype html><link rel="icon" href="data:,"><title>bench</title>',
    ),
    "/pkg": join(root, "pkg", "dist"),
    "/testing": join(root, "target", "testing-wasm"),
    "/bench": join(root, "bench"),
    "/job": join(root, "www", "dist-node"),
  });
  const browser = await launch(kind);
  const open = async () => {
    const page = await browser.newPage();
    page.on("console", (message) => console.error(`page: ${message.text()}`));
    await page.exposeFunction("report", (text) => print(JSON.parse(text)));
    await page.goto(`${server.url}/blank.html`);
    return page;
  };
  try {
    return await (options.suite === "peers" ? peersIn(open) : suiteIn(await open()));
  } finally {
    await browser.close();
    await server.close();
  }
}

function suiteIn(page) {
  return page.evaluate(async (settings) => {
    const load = {
      library: async () => ({
        ...(await import("/pkg/index.js")),
        internal: await import("/pkg/internal.js"),
      }),
      job: () => import("/job/job.js"),
      testing: async () => {
        const testing = await import("/testing/tinyloom.js");
        await testing.default({ module_or_path: "/testing/tinyloom_bg.wasm" });
        return testing;
      },
    };
    const { runSuite } = await import("/bench/run-suite.mjs");
    const report = (result) => window.report(JSON.stringify(result));
    // Of an error that is no native one, puppeteer keeps the class alone.
    return runSuite(settings, navigator.gpu, load, report).catch((error) => {
      throw new Error(String(error), { cause: error });
    });
  }, options);
}

/** Every task in a page of its own; a row that failed says with what message. */
async function peersIn(open) {
  const { steps, only } = options;
  const about = await inPage(await open(), "describe");
  const results = [];
  for (const task of tasks(only)) {
    const { workload, peer } = task;
    const settings = { ...task, steps, software: about.software };
    const row = await inPage(await open(), "measure", settings).catch((error) => ({
      workload,
      peer,
      // Without the lines of the page's stack.
      refused: error.message.split("\n", 1)[0],
    }));
    results.push(row);
    print(row);
  }
  return { ...about, results };
}

/** Calls a function of peers.mjs in a page and closes that, also where it crashes or never answers. */
async function inPage(page, name, argument) {
  let timer;
  const failed = new Promise((_, fail) => {
    page.once("error", fail);
    timer = setTimeout(() => fail(new Error(`no answer in ${PATIENCE / 1000} s`)), PATIENCE);
  });
  const called = page.evaluate(
    async (name, argument) => {
      try {
        return await (await import("/bench/peers.mjs"))[name](argument);
      } catch (error) {
        throw new Error(error?.message ?? String(error)); // puppeteer keeps native errors alone
      }
    },
    name,
    argument,
  );
  try {
    return await Promise.race([called, failed]);
  } finally {
    clearTimeout(timer);
    await page.close();
  }
}
