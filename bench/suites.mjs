// The suites of kernels alone, importable in a page and in Node.
import configs from "./configs.json" with { type: "json" };
import { attention, copyBandwidth, decode, tensors } from "./kernels.mjs";
import { PRODUCTS, products, way } from "./linear.mjs";
import { byKernel, CONFIGS } from "./workloads.mjs";

const LENGTHS = [128, 512, 1024, 2048, 4096, 8192];

/** Shapes of the attention suite; the last ones were not used to fit the selection rule. */
const ATTENTION = [
  ...LENGTHS.map((tokens) => ({ heads: 12, kvHeads: 12, headDim: 64, tokens })),
  ...[512, 4096].map((tokens) => ({ heads: 12, kvHeads: 4, headDim: 64, tokens })),
  ...[32, 80, 96, 128, 256].flatMap((headDim) =>
    LENGTHS.map((tokens) => ({ heads: 8, kvHeads: 8, headDim, tokens })),
  ),
  { heads: 6, kvHeads: 2, headDim: 64, tokens: 700 },
  { heads: 16, kvHeads: 2, headDim: 128, tokens: 1500 },
  { heads: 32, kvHeads: 8, headDim: 64, tokens: 3000 },
  { heads: 20, kvHeads: 5, headDim: 32, tokens: 900 },
  { heads: 10, kvHeads: 10, headDim: 32, tokens: 3000 },
];

/** Shapes of a mixed step's attention, by matrices: rows and gradients lie in f16. */
const MATRICES = [
  { heads: 12, kvHeads: 4, headDim: 64, tokens: 512, documents: 1 },
  { heads: 12, kvHeads: 4, headDim: 64, tokens: 4096, documents: 8 },
  { heads: 6, kvHeads: 2, headDim: 128, tokens: 4096, documents: 8 },
].map((work) => ({ ...work, half: true, halves: true, gradients: true }));

/** The shape whose variants docs/attention.md compares. */
const COMPARED = { heads: 12, kvHeads: 12, headDim: 64, tokens: 4096 };
const isCompared = (work) => Object.entries(COMPARED).every(([key, value]) => work[key] === value);
const pickedOnes = (candidates) => candidates.filter(({ picked }) => picked);

/** Shapes of attention over tensors. */
const TENSORS = [512, 4096].map((tokens) => ({ heads: 12, kvHeads: 12, headDim: 64, tokens }));

/** Caches of the attention suite. */
const DECODE = [
  ...[128, 2048, 8192, 32_768].flatMap((tokens) => [
    { heads: 12, kvHeads: 12, headDim: 64, tokens },
    { heads: 12, kvHeads: 4, headDim: 64, tokens },
  ]),
  { heads: 32, kvHeads: 8, headDim: 128, tokens: 20_000 },
];

/** A device of the testing module, with timestamps, as `settings` say. */
async function open(testing, gpu, { limits = "adapter", subgroups = true }) {
  const wanted = { subgroups, timestamps: true };
  const adapter = await gpu.requestAdapter({ powerPreference: "high-performance" });
  return testing.RawRuntime.create(gpu, adapter, JSON.stringify({ limits, features: wanted }));
}

/** What was measured, with the device it was measured on. */
function close(runtime, measured) {
  const { adapter, software, features, subgroupSize, limits } = JSON.parse(runtime.capabilities());
  runtime.release();
  return { adapter, software, features, subgroupSize, limits, ...measured };
}

/**
 * Every variant of every attention kernel; `only` keeps shapes whose text contains it, and `published` what
 * docs/attention.md shows: every variant at one shape, and at the others those that selection picks.
 */
export async function attentionSuite(testing, gpu, settings, report) {
  const { only = "", published = false } = settings;
  const runtime = await open(testing, gpu, settings);
  const results = [];
  const measure = async (what, works, suite) => {
    for (const work of works) {
      const { heads, kvHeads, headDim, tokens } = work;
      if (!`${what} ${heads}/${kvHeads} x ${headDim}, ${tokens} `.includes(only)) continue;
      const change = published && !isCompared(work) ? pickedOnes : undefined;
      for (const row of await suite(testing, runtime, work, change)) {
        results.push(row);
        report(row);
      }
    }
  };
  const copyGigabytesPerSecond = await copyBandwidth(runtime.device());
  report({ note: `a copy moves ${copyGigabytesPerSecond.toFixed(0)} GB/s, read and written` });
  await measure("training", ATTENTION, attention);
  const { subgroupMatrix } = JSON.parse(runtime.capabilities()).features;
  await measure("matrices", subgroupMatrix ? MATRICES : [], attention);
  await measure("tensors", TENSORS, tensors);
  await measure("decode", DECODE, decode);
  return close(runtime, { copyGigabytesPerSecond, results });
}

/** Every tile and split of matrix products; `only` keeps those whose text contains it. */
export async function matmulSuite(testing, gpu, settings, report) {
  const { only = "" } = settings;
  const runtime = await open(testing, gpu, settings);
  const { subgroupMatrix } = JSON.parse(runtime.capabilities()).features;
  const results = [];
  for (const work of PRODUCTS) {
    const { form, m, n, k, matrix } = work;
    if (!`${form}${way(work)} ${m}x${n}x${k}`.includes(only) || (matrix && !subgroupMatrix))
      continue;
    for (const row of await products(testing, runtime, work)) {
      results.push(row);
      report(row);
    }
  }
  return close(runtime, { results });
}

/** What the last chunk of a prompt is measured with: a model, tokens, the format of the weights. */
const PROMPTS = [
  ["SmolLM2-135M", 512, "f32"],
  ["SmolLM2-135M", 512, "f16"],
  ["Qwen3-0.6B", 512, "f16"],
  ["Qwen3-0.6B", 512, "int4"],
  ["Qwen3-0.6B", 4096, "f16"],
];

/** GPU times of the kernels of a prompt's last chunk. */
export async function promptSuite(testing, gpu, settings, report) {
  const { only = "" } = settings;
  const runtime = await open(testing, gpu, settings);
  const results = [];
  for (const [name, tokens, weights] of PROMPTS) {
    const workload = `prompt of ${tokens}, ${name} ${weights}`;
    if (!workload.includes(only)) continue;
    const config = JSON.stringify(configs[name].config);
    const options = JSON.stringify({ weights });
    const text = await testing.testing_prompt_profile(runtime, config, tokens, options);
    const profile = byKernel(JSON.parse(text));
    const microseconds = profile.reduce((sum, row) => sum + row.microseconds, 0);
    const dispatches = profile.reduce((sum, row) => sum + row.count, 0);
    results.push({ workload, context: tokens, microseconds, dispatches, profile });
    report(results.at(-1));
  }
  return close(runtime, { results });
}

/** GPU times of the kernels of one decoded token, by configuration and context. */
export async function tokenSuite(testing, gpu, settings, report) {
  const { only = "" } = settings;
  const runtime = await open(testing, gpu, settings);
  const results = [];
  for (const [name, { config }] of Object.entries(CONFIGS)) {
    for (const context of [128, 2048]) {
      const workload = `token ${name} behind ${context}`;
      if (!workload.includes(only)) continue;
      const text = await testing.testing_decode_profile(runtime, JSON.stringify(config), context);
      const profile = byKernel(JSON.parse(text));
      const microseconds = profile.reduce((sum, row) => sum + row.microseconds, 0);
      const dispatches = profile.reduce((sum, row) => sum + row.count, 0);
      results.push({ workload, context, microseconds, dispatches, profile });
      report(results.at(-1));
    }
  }
  return close(runtime, { results });
}
