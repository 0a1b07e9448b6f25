// What snapshots cost: turns with one and turns without, in pairs; and how rarely tinyloom takes one.
import { batch, CONFIGS } from "../../bench/workloads.mjs";
import { step } from "../../scripts/lib.mjs";
import { softwareOnly } from "../../scripts/machine.mjs";
import { withPage } from "../lanes/harness.mjs";
import { adapterName, keep, median } from "./results.mjs";

/** Seconds of a model. */
const SECONDS = softwareOnly() ? 180 : 50;
/** The share of the time that snapshots may cost. */
const MOST = 0.01;

/** In the page. */
async function measure(base, work, longest) {
  const tinyloom = await import(`${base}/pkg/index.js`);
  const internal = await import(`${base}/pkg/internal.js`);
  const stage = await import(`${base}/tests/reliability/snapshots-stage.mjs`);
  return stage.measure({ ...tinyloom, internal }, work, longest);
}

/** A median and its standard error, by the median of the distances from it. */
function estimateOf(list) {
  const middle = median(list);
  const distance = median(list.map((one) => Math.abs(one - middle)));
  return [middle, (1.2533 * 1.4826 * distance) / Math.sqrt(list.length)];
}

/** What snapshots cost of the time; `error` is the standard error of that. */
function shareOf(pairs) {
  const [cost, deviation] = estimateOf(pairs.map((pair) => pair.cost));
  const due = median(pairs.map((pair) => pair.due));
  const own = median(pairs.map((pair) => pair.own));
  return { cost, due, share: cost / due, error: deviation / due, own: own / due };
}

/** What is wrong with a row, if anything. */
function judge({ name, share, error }) {
  const percent = (part) => `${(100 * part).toFixed(2)} %`;
  if (!(share < MOST)) return `${name}: they cost ${percent(share)} of the time`;
  if (share + error < MOST) return undefined;
  return `${name}: they cost ${percent(share)} of the time, and the measurement errs by ${percent(error)}`;
}

/** Prints a line for each model, and keeps all as JSON. */
export async function snapshots({ seconds = SECONDS } = {}) {
  const names = softwareOnly() ? ["tiny"] : Object.keys(CONFIGS);
  const rows = [];
  const { adapter, software } = await withPage(
    "chromium",
    () => {},
    async (page, url) => {
      for (const name of names) {
        step(`snapshots of ${name}`);
        const { config, tokens } = CONFIGS[name];
        const ids = [...batch(4000, config.vocab_size).tokens];
        const found = await page.evaluate(measure, url, { config, tokens, ids }, 1000 * seconds);
        rows.push({ name, ...shareOf(found.pairs), ...found });
      }
      return page.evaluate(async (base) => {
        const { Runtime } = await import(`${base}/pkg/index.js`);
        const { adapter, software } = (await Runtime.create()).capabilities;
        return { adapter, software };
      }, url);
    },
  );
  for (const { name, pairs, bytes, cost, due, share, error, own } of rows) {
    const percent = (part) => `${(100 * part).toFixed(2)} %`;
    console.log(
      `snapshots: ${adapterName(adapter)}: ${name}: ${pairs.length} pairs; one of ${bytes} bytes is read in ` +
        `${Math.round(median(pairs.map(({ reading }) => reading)))} ms and costs ${cost.toFixed(1)} ms, one in ` +
        `${Math.round(due)} ms: ${percent(share)} ± ${percent(error)} of the time, by their own account ${percent(own)}`,
    );
  }
  for (const name of Object.keys(CONFIGS).filter((one) => !names.includes(one))) {
    console.log(`snapshots: ${name} is not measured on a software adapter`);
  }
  const wrong = rows.map(judge).filter(Boolean);
  for (const line of wrong) console.log(`  ${line}`);
  keep("snapshots", "chromium", adapter, { software, rows, wrong }, { short: seconds < SECONDS });
  return wrong.length === 0;
}
