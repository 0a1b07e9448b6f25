// node bench/align.mjs [sums] [kinds] [chain] [speed] [--seeds 1,2,3] [--rounds N] [--short] [--out FOLDER]
// What the trainers of tinyloom/align are for, in Node with Dawn, from the built package (`npm run build`):
// - sums: GRPO makes a model give right sums that has learned from data of which a third is wrong,
// - kinds: DPO makes a model prefer one of two kinds of text,
// - chain: a student learns better beside a teacher than alone,
// - speed: a step with weights beside a plain one, scores beside a loss, and GRPO on SmolLM2-135M's sizes.
// The first three run once for each seed, and say whether each is what it has to be. Without names all run. Each writes
// its results below FOLDER (by default bench/results) as align-NAME, and prints them as a table. --short is for the
// tests: fewer steps, a small model, and results as short-NAME.
import { commandLine } from "../scripts/lib.mjs";
import { dawnEnv } from "../scripts/machine.mjs";
import { chain } from "./align/chain.mjs";
import { kinds } from "./align/kinds.mjs";
import { speed } from "./align/speed.mjs";
import { sums } from "./align/sums.mjs";
import { alignTable } from "./align/tables.mjs";
import { RESULTS, writeResults } from "./results.mjs";

/** Each with whether a result is what it has to be, and what a short one has less of. */
const TASKS = {
  sums: [
    sums,
    ({ curve }) => curve[0].sampled <= 0.7 && curve.at(-1).sampled > 0.95,
    { steps: 400, updates: 50, each: 50 },
  ],
  kinds: [kinds, ({ before, after }) => before.preferred < 0.3 && after.preferred > 0.8, {}],
  chain: [
    chain,
    ({ alone, distilled }) => distilled.loss < alone.loss,
    { teaching: 250, steps: 80, rates: [0.02] },
  ],
};
/** What a short look at speed measures: nothing that means anything. */
const TINY = {
  vocab_size: 64,
  hidden_size: 16,
  intermediate_size: 32,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  max_position_embeddings: 512,
};
const { values, positionals } = commandLine({
  options: {
    seeds: { type: "string", default: "1,2,3" },
    rounds: { type: "string", default: "300" },
    short: { type: "boolean", default: false },
    out: { type: "string" },
  },
  allowPositionals: true,
});
const all = [...Object.keys(TASKS), "speed"];
const names = positionals.length > 0 ? positionals : all;
const unknown = names.filter((name) => !all.includes(name));
if (unknown.length > 0) {
  console.error(`there is no ${unknown.join(" or ")}; give some of ${all.join()}`);
  process.exit(2);
}

Object.assign(process.env, dawnEnv());
const { create } = await import("webgpu"); // reads the environment
const tinyloom = await import("../pkg/dist/index.js");
const align = await import("../pkg/dist/align/index.js");
const runtime = await tinyloom.Runtime.create({ gpu: create([]) });
const { adapter, software } = runtime.capabilities;
console.log(adapter);

const began = performance.now();
const elapsed = () => `${((performance.now() - began) / 1e3).toFixed(0)} s`;
const report = (point) => console.log(elapsed(), JSON.stringify(point));
let failed = 0;
for (const name of names) {
  const results = name === "speed" ? await timesOf() : await seedsOf(name);
  const folder = values.out ?? RESULTS;
  const workload = `${values.short ? "short" : "align"}-${name}`;
  writeResults(folder, "node", workload, { adapter, software, results });
  console.log(`\n${alignTable(name, results)}\n`);
}
process.exit(failed > 0 ? 1 : 0); // Dawn's threads would keep the process alive

function timesOf() {
  const less = values.short ? { config: TINY, updates: 1 } : {};
  return speed({ ...tinyloom, align }, runtime, { rounds: Number(values.rounds), report, ...less });
}

/** The results of each seed. */
async function seedsOf(name) {
  const [task, holds, less] = TASKS[name];
  const short = values.short ? less : {};
  const results = [];
  for (const seed of values.seeds.split(",").map(Number)) {
    const result = await task({ ...tinyloom, align }, runtime, { seed, report, ...short });
    results.push({ seed, ...result });
    report({ name, ...results.at(-1) });
    if (!holds(result)) failed++;
    console.log(
      `${name}, seed ${seed}: ${holds(result) ? "as it has to be" : "NOT as it has to be"}`,
    );
  }
  return results;
}
