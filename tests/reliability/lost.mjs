// The GPU process killed, or the device destroyed, at random moments of every operation: each goes on by itself.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { CONFIGS } from "../../bench/workloads.mjs";
import { root } from "../../scripts/lib.mjs";
import { withPage } from "../lanes/harness.mjs";

/** Chromium refuses adapters to a site after two losses within two minutes, except with this flag. */
const UNBLOCKED = "--disable-domain-blocking-for-3d-apis";

/** A model that a software adapter trains too. */
export const TINY = {
  config: { ...CONFIGS.tiny.config, max_position_embeddings: 128 },
  options: { learningRate: 1e-3, tokensPerStep: 128, totalSteps: 40, seed: 2 },
  steps: 10,
};

function numbers(seed) {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** In the page. */
async function open(base, parts, operations, kills) {
  const tinyloom = await import(`${base}/pkg/index.js`);
  const { Stage } = await import(`${base}/tests/reliability/lost-stage.mjs`);
  const stage = new Stage(tinyloom, parts);
  globalThis.stage = stage;
  globalThis.lose = kills ? () => globalThis.killGpu() : () => stage.runtime.device.destroy();
  return stage.open(undefined, operations ?? undefined);
}

/** In the page. */
function attempt(operation, part) {
  return globalThis.stage.attempt(operation, globalThis.lose, part);
}

/**
 * Losses in a browser.
 *
 * @param kills - whether the GPU process is killed; else the page destroys its device.
 * @param operations - those that are tried, in turn; default all.
 * @returns `{ browser, how, seed, adapter, rows }`.
 */
export function loseInBrowser(
  browser,
  { kills = false, blocked = false, count, seed, operations, parts = TINY },
) {
  const random = numbers(seed);
  return withPage(
    browser,
    () => {},
    async (page, url) => {
      if (kills) {
        const session = await page.browser().target().createCDPSession();
        await page.exposeFunction("killGpu", async () => {
          // Its answer may be lost with the process, or never come.
          const killed = session.send("Browser.crashGpuProcess").catch(() => {});
          await Promise.race([killed, new Promise((done) => setTimeout(done, 2000))]);
        });
      }
      const adapter = await page.evaluate(open, url, parts, operations, kills);
      const names =
        operations ?? (await page.evaluate(() => Object.keys(globalThis.stage.expected)));
      const rows = [];
      for (let at = 0; at < count; at++) {
        rows.push(await page.evaluate(attempt, names[at % names.length], random()));
      }
      const flag = blocked ? "" : `, ${UNBLOCKED}`;
      const how = kills ? `GPU process killed${flag}` : "device.destroy()";
      return { browser, how, seed, adapter, rows };
    },
    kills && !blocked ? { flags: [UNBLOCKED] } : {},
  );
}

const median = (list) => list.toSorted((a, b) => a - b)[list.length >> 1];

/** The result as JSON and a line. */
function report(part, results, count) {
  const date = new Date().toISOString().slice(0, 10);
  let good = true;
  for (const { browser, how, seed, adapter, rows } of results) {
    const whole = rows.filter(({ wrong }) => !wrong).length;
    const times = rows.map(({ back }) => back).filter((back) => back !== null);
    good &&= whole === count;
    console.log(
      `${part}: ${browser}, ${how}, seed ${seed}, ${adapter.vendor || adapter.description}: ${whole} of ${count} ` +
        `went on to the same bits; ${rows.filter(({ amid }) => amid).length} in the midst of a call; ` +
        `median ${median(times)} ms with compilation`,
    );
    for (const { operation, wrong } of rows) if (wrong) console.log(`  ${operation}: ${wrong}`);
  }
  const path = join(root, "bench", "results", `reliability-${part}-${date}.json`);
  writeFileSync(path, `${JSON.stringify({ part, date, count, results }, null, 1)}\n`);
  return good;
}

/** The GPU process of Chromium is killed. */
export async function gpuProcess({ count = 50, seed = Date.now() % 1e6 } = {}) {
  return report(
    "gpu-process",
    [await loseInBrowser("chromium", { kills: true, count, seed })],
    count,
  );
}

/** The GPU process is killed twice within two minutes: Chromium then refuses adapters, and calls wait. */
export async function blocked({ seed = Date.now() % 1e6 } = {}) {
  const operations = ["generate"];
  const result = await loseInBrowser("chromium", {
    kills: true,
    blocked: true,
    count: 2,
    seed,
    operations,
  });
  const waits = result.rows.filter(({ waited }) => waited).map(({ reopened }) => reopened);
  console.log(`blocked: the browser was waited for ${waits.length} times: ${waits.join(", ")} ms`);
  return report("blocked", [result], 2) && waits.length > 0;
}

/** The page destroys its device, in both browsers. */
export async function destroy({ count = 50, seed = Date.now() % 1e6 } = {}) {
  const results = [];
  for (const browser of ["chromium", "firefox"]) {
    results.push(await loseInBrowser(browser, { count, seed }));
  }
  return report("destroy", results, count);
}
