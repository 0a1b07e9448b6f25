// What snapshots cost: steps per second with and without them, in turns, and their own account of it.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { batch, CONFIGS, median } from "../../bench/workloads.mjs";
import { root } from "../../scripts/lib.mjs";
import { withPage } from "../lanes/harness.mjs";

/** Milliseconds of each turn, and turns of each kind. */
const [TURN, TURNS] = [15_000, 4];

/** In the page: trains for a while in turns, with snapshots and without. */
async function measure(base, { config, tokens, ids }, turn, turns) {
  const { Dataset, Model, Runtime, Trainer } = await import(`${base}/pkg/index.js`);
  const told = [];
  const open = async (recover) => {
    const runtime = await Runtime.create({ recover });
    const model = await Model.create(runtime, config, { seed: 1 });
    return Trainer.create(model, { tokensPerStep: tokens });
  };
  const bytes = 2 ** 33; // for the largest, which is above the default
  const trainers = [
    await open({ snapshotBytes: bytes, onState: (state) => told.push(state) }),
    await open(false),
  ];
  const data = Dataset.fromTokens(Uint32Array.from(ids), { sequenceLength: 64 });
  const rows = [[], []];
  for (let at = -2; at < 2 * turns; at++) {
    const which = Math.abs(at) % 2;
    const began = performance.now();
    let steps = 0;
    for await (const _ of trainers[which].run(data, { stepsAhead: 1 })) {
      steps += 1;
      if (performance.now() - began > turn) break;
    }
    // The first turns compile and learn.
    if (at >= 0) rows[which].push((1000 * steps) / (performance.now() - began));
  }
  const taken = told.filter(({ state }) => state === "snapshot");
  return {
    with: rows[0],
    without: rows[1],
    snapshots: taken.map(({ cost }) => cost),
    told: told.length,
  };
}

/** Prints a line for each model, and keeps all as JSON. */
export async function snapshots({ count = TURNS } = {}) {
  const date = new Date().toISOString().slice(0, 10);
  const rows = [];
  let adapter;
  await withPage(
    "chromium",
    () => {},
    async (page, url) => {
      adapter = await page.evaluate(async () => (await navigator.gpu.requestAdapter()).info.vendor);
      for (const [name, { config, tokens }] of Object.entries(CONFIGS)) {
        const ids = [...batch(4000, config.vocab_size).tokens];
        rows.push({
          name,
          ...(await page.evaluate(measure, url, { config, tokens, ids }, TURN, count)),
        });
      }
    },
  );
  let good = true;
  for (const row of rows) {
    const time = TURN * (row.with.length + 1);
    const share = row.snapshots.reduce((sum, cost) => sum + cost, 0) / time;
    const slower = 1 - median(row.with) / median(row.without);
    Object.assign(row, { share, slower });
    good &&= share < 0.01;
    console.log(
      `snapshots: ${row.name}: ${median(row.with).toFixed(2)} steps/s with, ${median(row.without).toFixed(2)} ` +
        `without (${(100 * slower).toFixed(2)} % slower); ${row.snapshots.length} snapshots held steps up for ` +
        `${(100 * share).toFixed(2)} % of the time`,
    );
  }
  const path = join(root, "bench", "results", `reliability-snapshots-${date}.json`);
  writeFileSync(path, `${JSON.stringify({ part: "snapshots", date, adapter, rows }, null, 1)}\n`);
  return good;
}
