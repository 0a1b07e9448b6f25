// node bench/finetune.mjs FOLDER [--weights int4] [--tokens 512] [--rank 16] [--steps 10]
// Trains an adapter on a checkpoint in a folder, in Node on this machine's GPU, from the built package and without a
// network, and prints what it took as JSON. scripts/random-checkpoint.mjs writes folders of true names and sizes.
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { create } from "webgpu";
import { Adapter, estimate, Model, Runtime, Trainer } from "../pkg/dist/index.js";
import { runtimes } from "../pkg/dist/internal.js";

const { values, positionals } = parseArgs({
  options: {
    weights: { type: "string", default: "int4" },
    tokens: { type: "string", default: "512" },
    rank: { type: "string", default: "16" },
    steps: { type: "string", default: "10" },
  },
  allowPositionals: true,
});
const folder = resolve(positionals[0] ?? ".");
const [tokensPerStep, rank, steps] = ["tokens", "rank", "steps"].map((name) =>
  Number(values[name]),
);
const { weights } = values;

const began = performance.now();
const seconds = () => (performance.now() - began) / 1000;
const runtime = await Runtime.create({ gpu: create([]), recover: false });
const { counters } = runtimes.of(runtime);
const peak = { gpu: 0, host: 0 };
const note = () => {
  peak.gpu = Math.max(peak.gpu, counters().gpuBytes);
  peak.host = Math.max(peak.host, process.memoryUsage().rss);
};
const source = pathToFileURL(`${folder}/`);
const model = await Model.fromPretrained(runtime, source, { weights, onProgress: note });
const loaded = seconds();
const options = { adapter: { rank }, trainer: { tokensPerStep } };
const config = JSON.parse(readFileSync(join(folder, "config.json"), "utf8"));
const told = await estimate(config, { ...options, weights }, runtime.capabilities);
const adapter = await Adapter.create(model, options.adapter);
const trainer = await Trainer.create(adapter, options.trainer);
const tokens = Uint32Array.from(
  { length: tokensPerStep },
  (_, i) => (i * 7919) % config.vocab_size,
);
const targets = tokens.map((_, i) => tokens[(i + 1) % tokensPerStep]);
const times = [];
let first = 0;
let loss = 0;
for (let at = 0; at < steps; at++) {
  const metrics = await trainer.step({ tokens, targets });
  note();
  first ||= seconds();
  loss = metrics.loss;
  times.push(metrics.milliseconds);
}
const later = times.slice(1).sort((a, b) => a - b);
console.log(
  JSON.stringify(
    {
      adapter: runtime.capabilities.adapter,
      folder,
      weights,
      parameters: model.parameterCount,
      trained: adapter.parameterCount,
      tokensPerStep,
      secondsToLoad: loaded,
      secondsToFirstStep: first,
      millisecondsPerStep: later[Math.floor(later.length / 2)] ?? times[0],
      peakGpuBytes: peak.gpu,
      estimatedGpuBytes: told.bytes.total,
      peakResidentBytes: peak.host,
      loss,
    },
    null,
    2,
  ),
);
process.exit(0); // Dawn's threads would keep the process alive
