// node bench/compare.mjs OLD NEW [--rounds N] [--blocks N] [--steps N] [--rows tiny,seed,…] [--plain] [--out FILE]
// Two builds on this machine's GPU in headless Chromium, in turns. Each round opens a page with both builds. There
// they alternate by blocks (see compare-page.mjs): pages of one build differ by more than what is looked for. OLD and
// NEW are folders with `pkg/dist` of each build. The rows are those of ROWS; without `--rows`, all of them. `--plain` holds
// both builds to WebGPU's default limits, without optional features.
// Prints per row the medians of all blocks, their ratio, and the quartiles of the ratios of single blocks.
import { writeFileSync } from "node:fs";
import { commandLine } from "../scripts/lib.mjs";
import { BUILDS, openBuilds } from "./builds.mjs";
import { median } from "./workloads.mjs";

/** What can be measured, by the names that `--rows` takes. */
const ROWS = {
  tiny: { kind: "train", model: "tiny" },
  mid: { kind: "train", model: "mid" },
  seed: { kind: "train", model: "seed" },
  "seed-documents": { kind: "train", model: "seed", documents: 8 },
  "seed-mixed": { kind: "train", model: "seed", precision: "mixed" },
  "seed-documents-mixed": { kind: "train", model: "seed", documents: 8, precision: "mixed" },
  nano: { kind: "train", model: "Llama-6x384", documents: 64 },
  "nano-mixed": { kind: "train", model: "Llama-6x384", documents: 64, precision: "mixed" },
  "smollm2-4096": { kind: "train", model: "SmolLM2-135M", tokens: 4096 },
  "smollm2-4096-mixed": {
    kind: "train",
    model: "SmolLM2-135M",
    tokens: 4096,
    precision: "mixed",
  },
  "wide-4096": { kind: "train", model: "Llama-6x1024" },
  "wide-4096-mixed": { kind: "train", model: "Llama-6x1024", precision: "mixed" },
  "adapter-qwen3": { kind: "adapter", model: "Qwen3-0.6B", tokens: 512, rank: 16 },
  "adapter-qwen3-mixed": {
    kind: "adapter",
    model: "Qwen3-0.6B",
    tokens: 512,
    rank: 16,
    precision: "mixed",
  },
  "adapter-qwen3-2048-mixed": {
    kind: "adapter",
    model: "Qwen3-0.6B",
    tokens: 2048,
    rank: 16,
    precision: "mixed",
  },
  "adapter-int4": { kind: "adapter", model: "seed", weights: "int4" },
  "decode-tiny": { kind: "decode", model: "tiny" },
  "decode-seed": { kind: "decode", model: "seed" },
  "decode-seed-f16": { kind: "decode", model: "seed", weights: "f16" },
  "decode-seed-int8": { kind: "decode", model: "seed", weights: "int8" },
  "decode-seed-int4": { kind: "decode", model: "seed", weights: "int4" },
  "decode-smollm2": { kind: "decode", model: "SmolLM2-135M", weights: "f32" },
  "decode-smollm2-f16": { kind: "decode", model: "SmolLM2-135M", weights: "f16" },
  "decode-smollm2-int4": { kind: "decode", model: "SmolLM2-135M", weights: "int4" },
  "batch-16": { kind: "batch", model: "seed", texts: 16, weights: "f32" },
  "prompt-512": { kind: "prompt", model: "seed", tokens: 512, weights: "f32" },
  "prompt-smollm2": { kind: "prompt", model: "SmolLM2-135M", tokens: 512, weights: "f32" },
  "prompt-smollm2-f16": { kind: "prompt", model: "SmolLM2-135M", tokens: 512, weights: "f16" },
  "prompt-smollm2-int4": { kind: "prompt", model: "SmolLM2-135M", tokens: 512, weights: "int4" },
  "prompt-smollm2-333": { kind: "prompt", model: "SmolLM2-135M", tokens: 333, weights: "f32" },
  "prompt-smollm2-20": { kind: "prompt", model: "SmolLM2-135M", tokens: 20, weights: "f32" },
  "prompt-qwen3-f16": { kind: "prompt", model: "Qwen3-0.6B", tokens: 512, weights: "f16" },
  "prompt-qwen3-int4": { kind: "prompt", model: "Qwen3-0.6B", tokens: 512, weights: "int4" },
  "prompt-qwen3-4000-f16": { kind: "prompt", model: "Qwen3-0.6B", tokens: 4000, weights: "f16" },
  "prompt-qwen3-4000-int4": { kind: "prompt", model: "Qwen3-0.6B", tokens: 4000, weights: "int4" },
  cold: { kind: "cold", model: "seed" },
};

const { values, positionals } = commandLine({
  allowPositionals: true,
  options: {
    rounds: { type: "string", default: "5" },
    blocks: { type: "string", default: "10" },
    steps: { type: "string", default: "20" },
    rows: { type: "string", default: Object.keys(ROWS).join() },
    plain: { type: "boolean", default: false },
    out: { type: "string" },
  },
});
const rows = values.rows.split(",");
const unknown = rows.filter((name) => !Object.hasOwn(ROWS, name));
if (unknown.length > 0) {
  console.error(
    `there is no row ${unknown.join(" or ")}; give some of ${Object.keys(ROWS).join()}`,
  );
  process.exit(2);
}
/** In the order of ROWS. */
const wanted = Object.entries(ROWS).flatMap(([name, row]) => (rows.includes(name) ? [row] : []));
const builds = await openBuilds(positionals);
const options = {
  blocks: Number(values.blocks),
  steps: Number(values.steps),
  runtime: values.plain ? { limits: "default", features: false } : {},
};
const rounds = [];
try {
  for (let round = 1; round <= Number(values.rounds); round++) {
    rounds.push(await builds.inPage(measure, BUILDS, wanted, options));
    console.log(`round ${round}: ${JSON.stringify(summary([rounds.at(-1)]))}`);
  }
} finally {
  await builds.close();
}
const { adapter } = rounds[0];
console.log(`adapter: ${Object.values(adapter).filter(Boolean).join(" ")}`);
const table = summary(rounds);
for (const { workload, old, new: now, ratio, quartiles } of table) {
  const spread = quartiles.map((quartile) => quartile.toFixed(3)).join(" to ");
  console.log(
    `${workload.padEnd(24)} ${old.toFixed(3)} ms  ${now.toFixed(3)} ms  ${ratio.toFixed(3)}  (half of the blocks: ${spread})`,
  );
}
if (values.out)
  writeFileSync(values.out, `${JSON.stringify({ adapter, options, table, rounds }, null, 2)}\n`);
process.exit(0);

/** Medians of all blocks, and how the ratio of one block varies. */
function summary(rounds) {
  return Object.keys(rounds[0].milliseconds).map((workload) => {
    const of = (build) => rounds.flatMap((round) => round.milliseconds[workload][build]);
    const [old, now] = [of("old"), of("new")];
    const ratios = now.map((value, block) => value / old[block]).sort((a, b) => a - b);
    const quartiles = [0.25, 0.75].map((share) => ratios[Math.floor(share * ratios.length)]);
    const medians = { old: median(old), new: median(now) };
    return { workload, ...medians, ratio: medians.new / medians.old, quartiles };
  });
}

/** In the page: milliseconds of each block, by workload and build. */
async function measure(names, rows, options) {
  const { alternate } = await import("/bench/compare-page.mjs");
  const packages = {};
  for (const name of names) packages[name] = await import(`/${name}/pkg/index.js`);
  return alternate(packages, rows, options);
}
