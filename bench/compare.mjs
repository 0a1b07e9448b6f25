// node bench/compare.mjs OLD NEW [--rounds N] [--steps N] [--rows tiny,seed,…] [--out FILE]
// Two builds on this machine's GPU in headless Chromium, in turns: each round opens a page per build and
// measures it, so that a GPU whose clock drifts slows both alike. The pages are cross-origin isolated: otherwise
// their clock counts by 0.1 ms, which is 5 % of a small step. OLD and NEW are folders with `pkg/dist` and `bench`
// of each build. The rows are those of ROWS; without `--rows`, all of them.
// Prints the medians of the rounds and their ratio.
import { writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { serve } from "../scripts/server.mjs";
import { launch } from "./browser.mjs";
import { median } from "./workloads.mjs";

/** What can be measured, by the names that `--rows` takes. */
const ROWS = {
  tiny: { model: "tiny" },
  mid: { model: "mid" },
  seed: { model: "seed" },
  "seed-documents": { model: "seed", options: { documents: 8 } },
  "decode-tiny": { model: "tiny", decodes: true },
  "decode-seed": { model: "seed", decodes: true },
};

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    rounds: { type: "string", default: "5" },
    steps: { type: "string", default: "100" },
    rows: { type: "string", default: Object.keys(ROWS).join() },
    out: { type: "string" },
  },
});
if (positionals.length !== 2) {
  console.error("give two folders: of the old build and of the new one");
  process.exit(2);
}
const rows = values.rows.split(",");
const unknown = rows.filter((name) => !Object.hasOwn(ROWS, name));
if (unknown.length > 0) {
  console.error(
    `there is no row ${unknown.join(" or ")}; give some of ${Object.keys(ROWS).join()}`,
  );
  process.exit(2);
}
/** In the order of ROWS: training before decoding. */
const wanted = Object.entries(ROWS).flatMap(([name, row]) => (rows.includes(name) ? [row] : []));
const builds = { old: resolve(positionals[0]), new: resolve(positionals[1]) };
const blank = Buffer.from('<!doctype html><link rel="icon" href="data:,"><title>bench</title>');
const routes = { "/blank.html": blank };
for (const [name, folder] of Object.entries(builds)) {
  routes[`/${name}/pkg`] = join(folder, "pkg", "dist");
  routes[`/${name}/bench`] = join(folder, "bench");
}
const server = await serve(routes, { isolated: true });
const browser = await launch("chromium");
const rounds = [];
try {
  for (let round = 1; round <= Number(values.rounds); round++) {
    // The first of a round alternates too.
    const names = round % 2 ? ["old", "new"] : ["new", "old"];
    for (const name of names) {
      const measured = await measure(name, Number(values.steps), wanted);
      rounds.push({ round, build: name, ...measured });
      console.log(`round ${round} ${name}: ${JSON.stringify(measured.milliseconds)}`);
    }
  }
} finally {
  await browser.close();
  await server.close();
}
const { adapter } = rounds[0];
console.log(`adapter: ${Object.values(adapter).filter(Boolean).join(" ")}`);
const table = Object.keys(rounds[0].milliseconds).map((workload) => {
  const of = (build) =>
    median(rounds.filter((row) => row.build === build).map((row) => row.milliseconds[workload]));
  return { workload, old: of("old"), new: of("new"), ratio: of("new") / of("old") };
});
for (const { workload, old, new: now, ratio } of table) {
  console.log(
    `${workload.padEnd(24)} ${old.toFixed(3)} ms  ${now.toFixed(3)} ms  ${ratio.toFixed(3)}`,
  );
}
if (values.out)
  writeFileSync(values.out, `${JSON.stringify({ adapter, table, rounds }, null, 2)}\n`);
process.exit(0);

/** Milliseconds of each workload: of a step, of a step queued ahead, of a decoded token. */
async function measure(name, steps, rows) {
  const page = await browser.newPage();
  page.on("console", (message) => console.error(`page: ${message.text()}`));
  await page.goto(`${server.url}/blank.html`);
  const measured = await page.evaluate(
    async (name, steps, rows) => {
      const tinyloom = await import(`/${name}/pkg/index.js`);
      const { train, batch, median, CONFIGS } = await import(`/${name}/bench/workloads.mjs`);
      const runtime = await tinyloom.Runtime.create();
      const milliseconds = {};
      // 256 tokens of tiny take 50 ms, and single measurements differ by a factor of two: the median of many is kept.
      const decodedToken = async (config) => {
        const created = await tinyloom.Model.create(runtime, config, { seed: 1 });
        const prompt = batch(128, config.vocab_size).tokens;
        const draw = async (maxTokens) => {
          const start = performance.now();
          for await (const _ of created.generate(prompt, { maxTokens, temperature: 0.8 }));
          return performance.now() - start;
        };
        const warm = performance.now() + 1000;
        while (performance.now() < warm) await draw(257);
        const tokens = [];
        for (let i = 0; i < 25; i++) {
          const short = await draw(1);
          tokens.push(((await draw(257)) - short) / 256);
        }
        await created.free();
        return median(tokens);
      };
      for (const { model, options, decodes } of rows) {
        if (decodes) {
          milliseconds[`decode ${model}`] = await decodedToken(CONFIGS[model].config);
          continue;
        }
        const row = await train(tinyloom, runtime, model, { steps, ...options });
        milliseconds[row.workload] = row.milliseconds;
        milliseconds[`${row.workload}, ahead`] = row.pipelinedMilliseconds;
      }
      const { adapter } = runtime.capabilities;
      runtime.destroy();
      return { adapter, milliseconds };
    },
    name,
    steps,
    rows,
  );
  await page.close();
  return measured;
}
