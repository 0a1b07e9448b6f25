// node bench/align.mjs [sums] [kinds] [chain] [speed] [--seeds 1,2,3] [--short] [--out FILE]
// What the trainers of tinyloom/align are for, in Node with Dawn, from the built package (`npm run build`):
// - sums: GRPO makes a model give right sums that has learned from data of which a third is wrong,
// - kinds: DPO makes a model prefer one of two kinds of text,
// - chain: a student learns better beside a teacher than alone,
// - speed: a step with weights beside a plain one, scores beside a loss, and GRPO on SmolLM2-135M's sizes.
// The first three run once for each seed, and say whether each is what it has to be. Without names all run. --short is
// for the tests: fewer steps.
import { writeFileSync } from "node:fs";
import { commandLine } from "../scripts/lib.mjs";
import { dawnEnv } from "../scripts/machine.mjs";
import { chain } from "./align/chain.mjs";
import { kinds } from "./align/kinds.mjs";
import { speed } from "./align/speed.mjs";
import { sums } from "./align/sums.mjs";

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
const { values, positionals } = commandLine({
  options: {
    seeds: { type: "string", default: "1,2,3" },
    short: { type: "boolean", default: false },
    out: { type: "string" },
  },
  allowPositionals: true,
});
const names = positionals.length > 0 ? positionals : [...Object.keys(TASKS), "speed"];

Object.assign(process.env, dawnEnv());
const { create } = await import("webgpu"); // reads the environment
const tinyloom = await import("../pkg/dist/index.js");
const align = await import("../pkg/dist/align/index.js");
const runtime = await tinyloom.Runtime.create({ gpu: create([]) });
const adapter = runtime.capabilities.adapter;
console.log(adapter);

const began = performance.now();
const elapsed = () => `${((performance.now() - began) / 1e3).toFixed(0)} s`;
const report = (point) => console.log(elapsed(), JSON.stringify(point));
const results = { adapter };
let failed = 0;
for (const name of names) {
  if (name === "speed") {
    results.speed = await speed({ ...tinyloom, align }, runtime, {});
    report(results.speed);
    continue;
  }
  const [task, holds, less] = TASKS[name];
  const short = values.short ? less : {};
  results[name] = [];
  for (const seed of values.seeds.split(",").map(Number)) {
    const result = await task({ ...tinyloom, align }, runtime, { seed, report, ...short });
    results[name].push({ seed, ...result });
    report({ name, seed, ...result });
    if (!holds(result)) failed++;
    console.log(
      `${name}, seed ${seed}: ${holds(result) ? "as it has to be" : "NOT as it has to be"}`,
    );
  }
}
if (values.out) writeFileSync(values.out, `${JSON.stringify(results, null, 2)}\n`);
process.exit(failed > 0 ? 1 : 0); // Dawn's threads would keep the process alive
