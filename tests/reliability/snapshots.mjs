// What snapshots cost: steps per second with and without them, in turns, and their own account of it.
import { batch, CONFIGS } from "../../bench/workloads.mjs";
import { step } from "../../scripts/lib.mjs";
import { softwareOnly } from "../../scripts/machine.mjs";
import { withPage } from "../lanes/harness.mjs";
import { adapterName, keep, median } from "./results.mjs";

/** Milliseconds of a turn at least, and turns of each kind. */
const [TURN, TURNS] = [10_000, 2];
/** Milliseconds of a turn at most: a large model's snapshots follow each other in a minute or more. */
const LONGEST = 100_000;
/** The share of the time that snapshots may cost. */
const MOST = 0.01;

/** In the page. */
async function measure(base, work, times) {
  const tinyloom = await import(`${base}/pkg/index.js`);
  const internal = await import(`${base}/pkg/internal.js`);
  const stage = await import(`${base}/tests/reliability/snapshots-stage.mjs`);
  return stage.measure({ ...tinyloom, internal }, work, times);
}

/** What is wrong with a row, if anything. */
function judge({ name, with: turns, share, slower }, software) {
  if (turns.some((one) => !one)) return `${name}: two snapshots were more than ${LONGEST} ms apart`;
  if (!(share < MOST)) return `${name}: they held steps up for ${share} of the time`;
  // A CPU that others use too is no measure of a hundredth.
  return !software && !(slower < MOST) ? `${name}: steps were slower by ${slower}` : undefined;
}

/** Prints a line for each model, and keeps all as JSON. */
export async function snapshots({ count = TURNS } = {}) {
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
        const times = { turn: TURN, turns: count, longest: LONGEST };
        const found = await page.evaluate(measure, url, { config, tokens, ids }, times);
        rows.push({ name, ...found });
      }
      return page.evaluate(async (base) => {
        const { Runtime } = await import(`${base}/pkg/index.js`);
        const { adapter, software } = (await Runtime.create()).capabilities;
        return { adapter, software };
      }, url);
    },
  );
  const wrong = [];
  for (const row of rows) {
    const good = row.with.filter(Boolean);
    row.share = median(good.map(({ share }) => share));
    row.slower = 1 - median(good.map(({ rate }) => rate)) / median(row.without);
    const problem = judge(row, software);
    if (problem) wrong.push(problem);
    console.log(
      `snapshots: ${adapterName(adapter)}: ${row.name}: ${row.last.bytes} bytes read in ` +
        `${Math.round(row.last.milliseconds)} ms, steps later by ${Math.round(row.last.cost)} ms; they held steps up ` +
        `for ${(100 * row.share).toFixed(2)} % of the time; steps/s with ` +
        `${good.map(({ rate }) => rate.toFixed(2))}, without ${row.without.map((rate) => rate.toFixed(2))}: ` +
        `${(100 * row.slower).toFixed(2)} % slower`,
    );
  }
  for (const name of Object.keys(CONFIGS).filter((one) => !names.includes(one))) {
    console.log(`snapshots: ${name} is not measured on a software adapter`);
  }
  for (const line of wrong) console.log(`  ${line}`);
  keep("snapshots", adapter, { software, rows, wrong });
  return wrong.length === 0;
}
