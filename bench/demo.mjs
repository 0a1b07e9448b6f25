// node bench/demo.mjs [--openings 3] [--rounds 3] [--seconds 120] [--out FOLDER]
// Measures the built demo page (www/dist) in Chromium on this machine's GPU, beside the benchmark (pkg/dist): no
// install, no network. `--openings` counts how often the page opens in a fresh profile, `--rounds` how often its
// benchmark button and the benchmark take turns, `--seconds` how long an opening run may take.
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { openPage } from "../scripts/browser.mjs";
import { commandLine } from "../scripts/lib.mjs";
import { serve } from "../scripts/server.mjs";
import { launch } from "./browser.mjs";
import { RESULTS, writeResults } from "./results.mjs";
import { median } from "./workloads.mjs";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
/** What the project wants of an H200-class GPU: seconds to the first step and to the solved task, and its share. */
const [FIRST, SOLVED, SHARE] = [3, 60, 0.9];
/** Settings in the page's address, with which no run begins by itself. */
const NO_OPENING = "#text-source=reverse";
/** Milliseconds that the page's benchmark may take. */
const PATIENCE = 900_000;

const { values } = commandLine({
  options: {
    openings: { type: "string", default: "3" },
    rounds: { type: "string", default: "3" },
    seconds: { type: "string", default: "120" },
    out: { type: "string", default: RESULTS },
  },
});
for (const file of ["www/dist/index.html", "pkg/dist/tinyloom_bg.wasm"]) {
  if (existsSync(join(root, file))) continue;
  console.error(`${file} is missing; run: npm run build -- --page`);
  process.exit(1);
}
const server = await serve({
  "/": join(root, "www", "dist"),
  "/blank.html": Buffer.from('<!doctype html><link rel="icon" href="data:,"><title>bench</title>'),
  "/pkg": join(root, "pkg", "dist"),
  "/bench": join(root, "bench"),
});
const openings = [];
for (let at = 0; at < Number(values.openings); at++) openings.push(await opening());
if (openings.length > 0) printOpenings();
const { about, results } = await inBrowser(benchmark);
await server.close();
writeResults(values.out, "chromium", "demo", { ...about, openings, results });
process.exit(0);

/** Calls with a browser in a profile of its own. What drivers keep on disk lies in an empty folder. */
async function inBrowser(work) {
  const caches = mkdtempSync(join(tmpdir(), "tinyloom-demo-"));
  process.env.XDG_CACHE_HOME = caches;
  process.env.__GL_SHADER_DISK_CACHE_PATH = caches;
  const browser = await launch("chromium");
  try {
    return await work(browser);
  } finally {
    await browser.close();
    rmSync(caches, { recursive: true, force: true });
  }
}

/** A page at that address, whose errors end the measurement. */
function show(browser, address) {
  return openPage(browser, address, (type, text) => {
    if (type !== "error") return;
    console.error(`page: ${text}`);
    process.exit(1);
  });
}

/** Notes steps and scores in the page, with the seconds since navigation. */
function listen() {
  globalThis.noted = [];
  document.addEventListener("tinyloom:training", ({ detail }) => {
    const { type, step, score } = detail;
    if (type !== "step" && type !== "score") return;
    globalThis.noted.push({ seconds: performance.now() / 1000, type, step, score });
  });
}

/** Opens the page with an empty cache and follows its own run. */
function opening() {
  return inBrowser(async (browser) => {
    const page = await show(browser, "about:blank");
    await page.evaluateOnNewDocument(listen);
    await page.goto(server.url);
    const timeout = Number(values.seconds) * 1000;
    await page.waitForSelector("body[data-state=stopped]", { timeout }).catch(() => undefined);
    const noted = await page.evaluate(() => globalThis.noted);
    const steps = noted.filter(({ type }) => type === "step");
    if (steps.length === 0) throw new Error(`no step within ${values.seconds} s`);
    const scores = noted.filter(({ type }) => type === "score");
    const share = ({ score }) => score.right / score.of;
    const solved = scores.find((one) => share(one) >= SHARE);
    const last = scores.findLast(({ seconds }) => seconds <= SOLVED);
    return {
      firstStepSeconds: steps[0].seconds,
      ...(solved && { solvedSeconds: solved.seconds, solvedStep: solved.step }),
      shareAfterMinute: last ? share(last) : 0,
      stepAfterMinute: steps.findLast(({ seconds }) => seconds <= SOLVED)?.step ?? 0,
      scores: scores.map((one) => [one.seconds, one.step, share(one)]),
    };
  });
}

function printOpenings() {
  for (const { firstStepSeconds, solvedSeconds, solvedStep, ...after } of openings) {
    const solved =
      solvedSeconds === undefined
        ? `not solved within ${values.seconds} s`
        : `${100 * SHARE} % of unseen problems after ${solvedSeconds.toFixed(1)} s and ${solvedStep} steps`;
    const share = (100 * after.shareAfterMinute).toFixed(0);
    console.log(
      `first step after ${firstStepSeconds.toFixed(2)} s; ${solved}; ` +
        `${share} % at ${SOLVED} s, step ${after.stepAfterMinute}`,
    );
  }
  const first = median(openings.map(({ firstStepSeconds }) => firstStepSeconds));
  const times = openings.map(({ solvedSeconds }) => solvedSeconds ?? Number.POSITIVE_INFINITY);
  console.log(`median: first step ${first.toFixed(2)} s (wanted on an H200: ${FIRST})`);
  console.log(`median: solved ${median(times).toFixed(1)} s (wanted on an H200: ${SOLVED})`);
}

/** The page's benchmark button and `npm run bench`, in turns, in one browser. */
async function benchmark(browser) {
  const rows = new Map();
  let about;
  for (let round = 0; round < Number(values.rounds); round++) {
    const page = await byButton(browser);
    const measured = page.results.filter(({ skipped }) => skipped === undefined);
    for (const { workload, skipped } of page.results) {
      if (skipped && round === 0) console.log(`${workload.padEnd(14)} skipped: ${skipped}`);
    }
    const names = measured.map(({ workload }) => workload);
    const bench = await byBench(browser, names, page.steps);
    about = { ...bench, date: page.date, userAgent: page.userAgent };
    for (const row of measured) {
      const { tokensPerSecond: same } = bench.results.find((one) => one.workload === row.workload);
      const both = rows.get(row.workload) ?? { page: [], bench: [] };
      both.page.push(row.tokensPerSecond);
      both.bench.push(same);
      rows.set(row.workload, both);
    }
  }
  about ??= await describe(browser);
  return { about, results: [...rows].map(compared) };
}

/** Rates of both, and whether their ranges meet; a single round has no range. */
function compared([workload, { page, bench }]) {
  const ratio = median(page) / median(bench);
  const within = Math.max(...page) >= Math.min(...bench) && Math.max(...bench) >= Math.min(...page);
  const rates = (all) => all.map((rate) => rate.toFixed(0)).join(", ");
  const agrees = page.length > 1 ? within : undefined;
  const verdict = { true: "within the spread", false: "BEYOND the spread", undefined: "" }[agrees];
  console.log(
    `${workload.padEnd(14)} tokens/s  page ${rates(page)}  bench ${rates(bench)}  ` +
      `medians ${ratio.toFixed(3)}  ${verdict}`,
  );
  return { workload, unit: "tokens per second", page, bench, ratio, agrees };
}

/** What the page's benchmark button gives. */
async function byButton(browser) {
  const page = await show(browser, `${server.url}/${NO_OPENING}`);
  await page.waitForSelector("#benchmark:not([disabled])", { timeout: PATIENCE });
  await page.$eval("#benchmark", (button) => button.click());
  await page.waitForSelector("#benchmark-files:not([hidden])", { timeout: PATIENCE });
  const report = await page.evaluate(async () => {
    // A headless browser has no download to look at: the link's Blob is read instead.
    const link = await new Promise((done) => {
      HTMLAnchorElement.prototype.click = function () {
        done(this);
      };
      document.getElementById("benchmark-json").click();
    });
    return (await fetch(link.href)).json();
  });
  await page.close();
  return report;
}

/** What `npm run bench` measures of these workloads. */
async function byBench(browser, only, steps) {
  const page = await show(browser, `${server.url}/blank.html`);
  const measured = await page.evaluate(
    async (settings) => {
      const { runAll } = await import("/bench/workloads.mjs");
      const load = async () => ({
        ...(await import("/pkg/index.js")),
        internal: await import("/pkg/internal.js"),
      });
      return runAll(load, navigator.gpu, settings);
    },
    { only, steps },
  );
  await page.close();
  return measured;
}

/** The adapter, where nothing else was measured. */
async function describe(browser) {
  const page = await show(browser, `${server.url}/blank.html`);
  return page.evaluate(async () => {
    const { vendor, architecture, device, description } = (
      await navigator.gpu.requestAdapter({ powerPreference: "high-performance" })
    ).info;
    const date = new Date().toISOString().slice(0, 10);
    return { adapter: { vendor, architecture, device, description }, date };
  });
}
