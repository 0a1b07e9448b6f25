// node bench/nanogpt.mjs TEXT [--size full|small|llama] [--precision f32|mixed] [--plain] [--whole]
//   [--host chromium|node] [--seeds 1] [--every 250] [--out FOLDER]
// Trains nanoGPT's shakespeare_char on the file TEXT (tinyshakespeare) from the built package, in a tab or in Node, until
// the loss over the whole validation split is that of nanoGPT, or with `--whole` to the end. Says how many seconds of
// training that took. `--plain` holds to WebGPU's default limits, without optional features. Every run is reported.
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { openPage } from "../scripts/browser.mjs";
import { commandLine } from "../scripts/lib.mjs";
import { serve } from "../scripts/server.mjs";
import { launch } from "./browser.mjs";
import { nanogpt, SIZES } from "./nanogpt-run.mjs";
import { RESULTS, writeResults } from "./results.mjs";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const { values, positionals } = commandLine({
  options: {
    size: { type: "string", default: "full" },
    precision: { type: "string", default: "f32" },
    plain: { type: "boolean", default: false },
    whole: { type: "boolean", default: false },
    host: { type: "string", default: "chromium" },
    seeds: { type: "string", default: "1" },
    every: { type: "string", default: "250" },
    out: { type: "string", default: RESULTS },
  },
  allowPositionals: true,
});
const [file] = positionals;
if (!file || !existsSync(file) || !SIZES[values.size]) {
  console.error("give the file of tinyshakespeare, and --size full, small or llama");
  process.exit(2);
}
const text = readFileSync(file, "utf8");
const run = values.host === "node" ? inNode : inPage;
const runs = [];
for (let at = 0; at < Number(values.seeds); at++) {
  const { size, precision, plain, whole } = values;
  const asked = { size, precision, plain, whole, every: Number(values.every), seed: 1337 + at };
  runs.push(await run(asked));
  const { best, minutes, millisecondsPerStep, secondsToWanted, wanted } = runs.at(-1);
  const step = millisecondsPerStep.toFixed(1);
  const met = secondsToWanted === undefined ? "not reached" : `${secondsToWanted.toFixed(1)} s`;
  console.log(
    `best ${best.toFixed(4)} in ${minutes.toFixed(2)} minutes, ${step} ms per step; ${wanted}: ${met}`,
  );
}
const { adapter, features, userAgent } = runs[0].about;
const rows = runs.map(({ about: _, ...one }) => one);
writeResults(
  values.out,
  values.host,
  ["nanogpt", values.size, values.precision, ...(values.plain ? ["plain"] : [])].join("-"),
  {
    adapter,
    features,
    userAgent,
    rows,
  },
);
process.exit(rows.every(({ best, wanted }) => best <= wanted) ? 0 : 1);

function report({ step, loss, targets, seconds }) {
  console.log(`step ${step}, ${seconds.toFixed(1)} s: ${loss.toFixed(4)} over ${targets} targets`);
}

async function inNode(asked) {
  const { create } = await import("webgpu");
  const tinyloom = await import("../pkg/dist/index.js");
  return nanogpt(tinyloom, create([]), { ...asked, text }, report);
}

async function inPage(asked) {
  const server = await serve({
    "/blank.html": Buffer.from(
      '<!doctype html><link rel="icon" href="data:,"><title>bench</title>',
    ),
    "/pkg": join(root, "pkg", "dist"),
    "/bench": join(root, "bench"),
    "/text": Buffer.from(text),
  });
  const browser = await launch("chromium");
  try {
    const page = await openPage(browser, `${server.url}/blank.html`, () => {});
    await page.exposeFunction("report", report);
    return await page.evaluate(
      async (base, asked) => {
        const [tinyloom, { nanogpt }, text] = await Promise.all([
          import(`${base}/pkg/index.js`),
          import(`${base}/bench/nanogpt-run.mjs`),
          fetch(`${base}/text`).then((response) => response.text()),
        ]);
        return nanogpt(tinyloom, undefined, { ...asked, text }, globalThis.report).catch(
          (error) => {
            throw new Error(`${error.code ?? error.name}: ${error.message}`); // puppeteer keeps a plain error's text
          },
        );
      },
      server.url,
      asked,
    );
  } finally {
    await browser.close();
    await server.close();
  }
}
