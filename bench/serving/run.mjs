// The suite `serving`, for bench/run.mjs: each row in a fresh browser with an empty profile.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "../../scripts/lib.mjs";
import { serve } from "../../scripts/server.mjs";
import { launch } from "../browser.mjs";
import { agreements } from "./agree.mjs";
import { nameOf, rows } from "./rows.mjs";

/** Milliseconds that one row may take, and seconds that have to be left to begin one. */
const PATIENCE = 120_000;
const LEAST = 15;

/** Files whose transfer alone is timed: what loading cannot go below with this server. */
const TRANSFERRED = ["model.safetensors", "q4_0.gguf"].map((name) => `/weights/Qwen3-0.6B/${name}`);

/**
 * Hides subgroup matrices from a page and from workers of its Blobs, as where Chromium runs without flags. It runs in
 * the page, before everything else.
 */
function hideMatrices() {
  const hide = () => {
    const found = Object.getOwnPropertyDescriptor(GPUAdapter.prototype, "features");
    const get = function () {
      return new Set([...found.get.call(this)].filter((name) => !/subgroup-matrix/.test(name)));
    };
    Object.defineProperty(GPUAdapter.prototype, "features", { get });
  };
  hide();
  const made = URL.createObjectURL;
  URL.createObjectURL = (blob) => {
    if (blob.type !== "text/javascript") return made.call(URL, blob);
    return made.call(URL, new Blob([`(${hide})();\n`, blob], { type: blob.type }));
  };
}

const blank = Buffer.from('<!doctype html><link rel="icon" href="data:,"><title>bench</title>');

/**
 * Measures all rows.
 *
 * @param settings - `weights`: the folder that weights.py and gguf.mjs wrote; `only`: what a row's name contains;
 *   `until`: seconds from now after which no row begins; `taken`: rows of an earlier run, which are not run again.
 * @param print - told of each row.
 */
export async function serving({ weights, only, until, taken = [] }, print) {
  // A driver's own cache would outlast the profile.
  process.env.__GL_SHADER_DISK_CACHE = "0";
  const server = await serve(
    {
      "/blank.html": blank,
      "/pkg": join(root, "pkg", "dist"),
      "/bench": join(root, "bench"),
      "/weights": weights,
    },
    // Threads of wasm need it.
    { isolated: true },
  );
  const page = (row, name, ...args) => inPage(server.url, row, name, ...args);
  const end = performance.now() + 1000 * until;
  const results = [];
  try {
    const about = await page({}, "describe");
    const transfers = [];
    for (const path of TRANSFERRED)
      transfers.push(await page({}, "transfer", path).catch(({ message }) => ({ path, message })));
    for (const row of rows(only)) {
      const before = taken.find((one) => nameOf(one) === nameOf(row) && !one.refused);
      if (!before && end - performance.now() < 1000 * LEAST) {
        console.log(`not run for lack of time: ${nameOf(row)}`);
        continue;
      }
      results.push(before ?? (await measured(page, row, about)));
      if (!before) print(results.at(-1));
    }
    return { ...about, versions: versions(), transfers, results, agreements: agreements(results) };
  } finally {
    await server.close();
  }
}

/** A row, or with what message it was refused. */
async function measured(page, row, { software }) {
  const settings = software && row.peer === "transformers" ? { ...row, device: "wasm" } : row;
  const work = row.workload.startsWith("where") ? "where" : "measure";
  return page(settings, work, settings).catch(({ message }) => ({
    ...row,
    refused: message.split("\n", 1)[0],
  }));
}

const MODULES = {
  describe: "/bench/peers.mjs",
  measure: "/bench/serving/measure.mjs",
  transfer: "/bench/serving/measure.mjs",
  where: "/bench/serving/where.mjs",
};

/** Calls a function of a module in a page of a new browser. */
async function inPage(url, { matrices = true }, name, ...args) {
  const browser = await launch("chromium");
  let timer;
  try {
    const page = await browser.newPage();
    page.on("pageerror", (error) => console.error(`page: ${error.message}`));
    if (!matrices) await page.evaluateOnNewDocument(hideMatrices);
    await page.goto(`${url}/blank.html`);
    const late = new Promise((_, fail) => {
      page.once("error", fail);
      timer = setTimeout(() => fail(new Error(`no answer in ${PATIENCE / 1000} s`)), PATIENCE);
    });
    const called = page.evaluate(callInPage, MODULES[name], name, args);
    return await Promise.race([called, late]);
  } finally {
    clearTimeout(timer);
    await browser.close();
  }
}

/** Runs in the page. Of an error that is no native one, puppeteer keeps the class alone. */
async function callInPage(module, name, args) {
  try {
    return await (await import(module))[name](...args);
  } catch (error) {
    throw new Error(error?.message ?? String(error), { cause: error });
  }
}

/** What is locked of the peers. */
function versions() {
  const text = readFileSync(join(root, "bench", "peers", "package.json"), "utf8");
  const { dependencies } = JSON.parse(text);
  return Object.fromEntries(
    ["@wllama/wllama", "@huggingface/transformers"].map((name) => [name, dependencies[name]]),
  );
}

/** A row in one line. */
export function lineOf(row) {
  if (row.refused) return `${nameOf(row)}: refused: ${row.refused}`;
  if (row.ways) {
    const ways = row.ways.map((way) => `  ${way.tokensPerSecond.toFixed(0)} tokens/s  ${way.what}`);
    return [nameOf(row), ...ways].join("\n");
  }
  const { loadSeconds, firstSeconds, prompt, decode } = row;
  return [
    nameOf(row).padEnd(50),
    `load ${loadSeconds.toFixed(2)} s, with first token ${firstSeconds.toFixed(2)} s`,
    `prompt of ${prompt.tokens} ${prompt.milliseconds.toFixed(1)} ms`,
    `${decode.tokensPerSecond.toFixed(1)} tokens/s`,
  ].join("  ");
}
