// Decoding of several texts at once, and prompt lookup on a text that repeats itself and on another. Importable in a
// page and in Node.
import { batch, CONFIGS, median, warm } from "./workloads.mjs";

const PROMPT = 128;
const TOKENS = 256;
/** Texts of a batch. */
const COUNTS = [1, 4, 16, 32];
/** Weights in which sixteen texts are decoded. */
const FORMATS = ["f16", "int8", "int4"];
const RUNS = 3;

/** Milliseconds of a whole generation, and from its first token to its last. */
async function timed(tokens) {
  const begun = performance.now();
  let [first, count] = [0, 0];
  for await (const _ of tokens) if (++count === 1) first = performance.now();
  const end = performance.now();
  return { whole: end - begun, decoding: end - first, count };
}

/** The median of some runs behind a warm one. */
async function repeated(work) {
  await warm(async () => void (await timed(work())));
  const runs = [];
  for (let run = 0; run < RUNS; run++) runs.push(await timed(work()));
  const rate = ({ count, whole }) => (1000 * count) / whole;
  const decoded = ({ count, decoding }) => (1000 * count) / decoding;
  return {
    tokensPerSecond: median(runs.map(rate)),
    decodedPerSecond: median(runs.map(decoded)),
    runs: runs.map(rate),
  };
}

async function batches(model, { vocab_size: vocabulary }, report) {
  const prompts = (count) =>
    Array.from({ length: count }, (_, seed) => ({
      prompt: batch(PROMPT + seed, vocabulary).tokens.slice(seed),
      seed,
    }));
  const measure = async (count, weights) => {
    const options = { maxTokens: TOKENS, temperature: 0.8, stopTokens: [], weights };
    const row = await repeated(() => model.generateBatch(prompts(count), options));
    report({ workload: `batch of ${count}`, weights, ...row });
  };
  for (const count of COUNTS) await measure(count, "f32");
  for (const weights of FORMATS) await measure(16, weights);
}

async function lookups(model, { vocab_size: vocabulary }, report) {
  const round = Array.from({ length: PROMPT }, (_, i) => batch(16, vocabulary).tokens[i % 16]);
  for (const [what, options] of [
    // A random model's greedy text soon goes round; at temperature 1 nothing occurs twice.
    ["repetitive", { temperature: 0 }],
    ["other", { temperature: 1, seed: 1 }],
  ]) {
    for (const promptLookup of [false, true]) {
      const given = { ...options, maxTokens: 2 * TOKENS, stopTokens: [], promptLookup };
      const row = await repeated(() => model.generate(round, given));
      report({ workload: `${what} text${promptLookup ? ", lookup" : ""}`, ...row });
    }
  }
}

/** @returns rows `{ workload, tokensPerSecond, decodedPerSecond, runs }`: with prompts, without, and of each run. */
export async function batchSuite(tinyloom, gpu, { limits = "adapter", only }, report) {
  const runtime = await tinyloom.Runtime.create({ gpu, limits });
  const { config } = CONFIGS[only || "seed"];
  const model = await tinyloom.Model.create(runtime, config, { seed: 1 });
  const results = [];
  const told = (row) => {
    results.push(row);
    const { workload, weights = "f32", tokensPerSecond, decodedPerSecond } = row;
    const [all, decoded] = [tokensPerSecond, decodedPerSecond].map((x) => x.toFixed(0));
    report({ note: `${workload}, ${weights}: ${all} tokens/s, ${decoded} behind the prompts` });
  };
  await batches(model, config, told);
  await lookups(model, config, told);
  const { adapter, limits: raised, features, subgroupSize, software } = runtime.capabilities;
  runtime.destroy();
  return { adapter, software, features, subgroupSize, limits: raised, results };
}
