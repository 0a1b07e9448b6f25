// The measured work, importable in a page and in Node: training steps and decoding of the three
// reference configurations.
import configs from "./configs.json" with { type: "json" };
import { arithmeticPeak, copyBandwidth } from "./kernels.mjs";

const { tiny, mid, seed } = configs;

/** The configurations of the published rows: batch 1, one document of `tokens` tokens. */
export const CONFIGS = { tiny, mid, seed };

/** A reproducible batch: tokens that follow no rule, so that a falling loss means learning by heart. */
export function batch(tokens, vocabulary, documents = 1) {
  let state = 12345;
  const next = () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state >>> 8) % vocabulary;
  };
  const ids = Uint32Array.from({ length: tokens + 1 }, next);
  const length = tokens / documents;
  const starts = Uint32Array.from({ length: tokens }, (_, i) => i - (i % length));
  return { tokens: ids.slice(0, tokens), targets: ids.slice(1), documents: starts };
}

/** Milliseconds of work before anything is timed. */
const WARM_UP = 1000;

export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)];
}

/** An idle GPU has lowered its clock, and takes a while of work to raise it. */
export async function warm(work) {
  const end = performance.now() + WARM_UP;
  while (performance.now() < end) await work();
}

/**
 * A trainer of one configuration, with `documents`, `recompute`, `precision` and `layers` as in `train`.
 *
 * @returns the model, the trainer and what runs them: `step`, one step whose loss is read back; `awaited`,
 *   the median milliseconds of such steps; `ahead`, the mean milliseconds of a step while four more are
 *   queued behind the one whose loss is awaited.
 */
export async function createTraining(tinyloom, runtime, name, options = {}) {
  const { documents = 1, recompute = false, precision = "f32" } = options;
  const { config, tokens: usual } = configs[name];
  const tokens = options.tokens ?? usual;
  const layers = options.layers ?? config.num_hidden_layers;
  const length = documents * tokens;
  const model = await tinyloom.Model.create(
    runtime,
    { ...config, num_hidden_layers: layers },
    { seed: 1 },
  );
  const trainer = await tinyloom.Trainer.create(model, {
    tokensPerStep: length,
    learningRate: 3e-4,
    schedule: "constant",
    recompute,
    precision,
  });
  const data = batch(length, config.vocab_size, documents);
  const step = () => trainer.step(data);
  const awaited = async (steps) => {
    const times = [];
    for (let i = 0; i < steps; i++) {
      const began = performance.now();
      await step();
      times.push(performance.now() - began);
    }
    return median(times);
  };
  const ahead = queued(tinyloom, trainer, { length, tokens, vocabulary: config.vocab_size });
  return { model, trainer, length, step, awaited, ahead };
}

/**
 * What trains so many steps while four more are queued behind the one whose loss is awaited, and gives the mean
 * milliseconds of a step.
 *
 * @param shape - tokens per step, those of one document, and the vocabulary that they are from.
 * @param seen - called after each step.
 */
export function queued(
  { Dataset },
  trainer,
  { length, tokens = length, vocabulary },
  seen = () => {},
) {
  // Made when it is needed: a cold start does not contain it.
  let dataset;
  return async (steps) => {
    dataset ??= await Dataset.fromTokens(batch(4 * length, vocabulary).tokens, {
      sequenceLength: tokens,
      validationFraction: 0,
    });
    const began = performance.now();
    for await (const _ of trainer.run(dataset, { steps, stepsAhead: 4 })) seen();
    return (performance.now() - began) / steps;
  };
}

/**
 * Trains one configuration for `steps` steps of `documents` documents with the loss read back each
 * step, `recompute` and `precision` as in the trainer's options; `tuned` names a runtime that measures tiles.
 *
 * @returns milliseconds per step (median), the cold start apart, losses, bytes, and with `profile`
 *   the GPU time by kernel.
 */
export async function train(tinyloom, runtime, name, options = {}) {
  const { steps = 40, profile = false } = options;
  const began = performance.now();
  const training = await createTraining(tinyloom, runtime, name, options);
  const { model, trainer, length, step, awaited, ahead } = training;
  const first = await step();
  const cold = performance.now() - began;
  // The loss after this many steps. A row counts only if its loss falls.
  let last = first;
  for (let i = 0; i < steps; i++) last = await step();
  await warm(step);
  const milliseconds = await awaited(steps);
  await ahead(steps);
  const result = {
    workload: trainName(name, options),
    tokens: length,
    milliseconds,
    pipelinedMilliseconds: await ahead(steps),
    // 6 operations a weight and token, as is usual; attention comes on top.
    operations: 6 * model.parameterCount * length,
    teraflops: (6 * model.parameterCount * length) / milliseconds / 1e9,
    tokensPerSecond: (length / milliseconds) * 1000,
    coldMilliseconds: cold,
    firstLoss: first.loss,
    lastLoss: last.loss,
    // In a worker, as on the demo page, every call gives a promise.
    dispatches: (await trainer.plan()).length,
    gpuBytes: model.gpuBytes,
    ...(profile ? { profile: byKernel(await trainer.profile()) } : {}),
  };
  await model.free();
  return result;
}

export const trainName = (
  name,
  { documents = 1, recompute = false, precision, tuned = false, tokens } = {},
) =>
  [
    `train ${name}`,
    ...(tokens ? [`of ${tokens}`] : []),
    ...(documents > 1 ? [`x ${documents}`] : []),
    ...(recompute ? ["recomputed"] : []),
    ...(precision ? [precision] : []),
    ...(tuned ? ["tuned"] : []),
  ].join(" ");

/** Rows of a plan summed by kernel, the longest first. */
export function byKernel(rows) {
  const groups = new Map();
  for (const row of rows) {
    const shape = /^mat/.test(row.kernel) ? ` ${row.label.replace(/^layer \d+ /, "")}` : "";
    const key = `${row.phase} ${row.kernel}${shape} [${row.variant}]`;
    const group = groups.get(key) ?? { key, count: 0, microseconds: 0, flops: 0, grid: row.grid };
    group.count += 1;
    group.microseconds += row.gpuMicroseconds ?? 0;
    group.flops += row.flops;
    groups.set(key, group);
  }
  return [...groups.values()].sort((a, b) => b.microseconds - a.microseconds);
}

/**
 * A model of one configuration that decodes, with `tokens`, `context` and `weights` as in `decode`.
 *
 * @returns the model; `draw`, which writes so many tokens and gives their count and the milliseconds; and
 *   `perToken`, milliseconds per token behind the prompt, without the prompt's own.
 */
export async function createDecoding(tinyloom, runtime, name, options = {}) {
  const { tokens = 256, context = 128, weights = "f32" } = options;
  const { config } = configs[name];
  const model = await tinyloom.Model.create(runtime, config, { seed: 1 });
  const prompt = batch(context, config.vocab_size).tokens;
  const draw = async (maxTokens) => {
    let count = 0;
    const start = performance.now();
    const options = { maxTokens, temperature: 0.8, weights, seed: 0, stopTokens: [] };
    for await (const _ of model.generate(prompt, options)) count += 1;
    return { count, milliseconds: performance.now() - start };
  };
  const perToken = async () => {
    const short = await draw(1);
    const long = await draw(tokens + 1);
    return (long.milliseconds - short.milliseconds) / (long.count - short.count);
  };
  return { model, draw, perToken };
}

/** Decodes `tokens` tokens after a prompt of `context` and gives tokens per second. */
export async function decode(tinyloom, runtime, name, options = {}) {
  const { tokens = 256, context = 128, weights = "f32" } = options;
  const { model, draw, perToken } = await createDecoding(tinyloom, runtime, name, options);
  await warm(() => draw(tokens));
  const tokensPerSecond = 1000 / (await perToken());
  const { parameterCount } = model;
  await model.free();
  return {
    workload: decodeName(name, options),
    context,
    weights,
    tokensPerSecond,
    gigabytesPerSecond: (parameterCount * BYTES[weights] * tokensPerSecond) / 1e9,
  };
}

/** Bytes of a weight, its share of a scale counted. */
const BYTES = { f32: 4, f16: 2, int8: 9 / 8, int4: 5 / 8 };

export const decodeName = (name, { context = 128, weights = "f32" } = {}) =>
  [
    `decode ${name}`,
    ...(context > 128 ? [`behind ${context}`] : []),
    ...(weights === "f32" ? [] : [weights]),
  ].join(" ");

/** What is decoded: each configuration behind a short and a long text, and the largest packed. */
const DECODED = [
  ...Object.keys(CONFIGS).flatMap((name) => [128, 2048].map((context) => [name, { context }])),
  ...["f16", "int8", "int4"].map((weights) => ["seed", { weights }]),
];

/** Tokens per step at which memory is measured. It must grow in proportion. */
const LENGTHS = [1024, 2048, 4096, 8192];

/** Bytes on the GPU of a model of two layers of width 768 with its trainer, for steps of `tokens`. */
export async function memory(tinyloom, runtime, tokens) {
  const config = { ...CONFIGS.seed.config, num_hidden_layers: 2 };
  const model = await tinyloom.Model.create(runtime, config, { seed: 1 });
  await tinyloom.Trainer.create(model, { tokensPerStep: tokens });
  const { gpuBytes } = model;
  model.free();
  return { workload: `memory ${tokens}`, tokens, gpuBytes };
}

/** What is trained: each configuration, and the largest with more documents and with less memory. */
const TRAINED = [
  ...Object.keys(CONFIGS).map((name) => [name, {}]),
  ["seed", { documents: 8 }],
  ["seed", { documents: 8, recompute: true }],
  ["seed", { precision: "mixed" }],
  ["seed", { documents: 8, precision: "mixed" }],
];
/** What is trained with measured tiles. */
const TUNED = [
  ["tiny", { tuned: true }],
  ["seed", { tuned: true }],
];

/**
 * From importing the module to the end of the first training step, by stages. What the driver keeps
 * on disk of earlier runs counts.
 *
 * @param load - imports the module; nothing has imported it before.
 */
async function start(load, gpu, limits) {
  const { config, tokens } = CONFIGS.seed;
  const stages = {};
  let tinyloom, runtime, model, trainer;
  for (const [stage, work] of Object.entries({
    module: async () => (tinyloom = await load()),
    runtime: async () => (runtime = await tinyloom.Runtime.create({ gpu, limits })),
    model: async () => (model = await tinyloom.Model.create(runtime, config, { seed: 1 })),
    trainer: async () =>
      (trainer = await tinyloom.Trainer.create(model, { tokensPerStep: tokens })),
    step: () => trainer.step(batch(tokens, config.vocab_size)),
  })) {
    const began = performance.now();
    await work();
    stages[stage] = performance.now() - began;
  }
  runtime.destroy();
  const startMilliseconds = Object.values(stages).reduce((sum, one) => sum + one, 0);
  return { workload: "start seed", startMilliseconds, stages };
}

/** Steps of which the last must leave memory as the hundredth did. */
const MANY_STEPS = 10_000;

/** What a runtime holds after 100 steps of tiny and after many. */
async function endure(tinyloom, runtime, record) {
  const { config, tokens } = CONFIGS.tiny;
  const model = await tinyloom.Model.create(runtime, config, { seed: 1 });
  const trainer = await tinyloom.Trainer.create(model, { tokensPerStep: tokens });
  const data = batch(tokens, config.vocab_size);
  let early;
  for (let step = 1; step <= MANY_STEPS; step++) {
    await trainer.step(data);
    if (step !== 100 && step !== MANY_STEPS) continue;
    const { gpuBytes, wasmBytes } = tinyloom.internal.runtimes.of(runtime).counters();
    record({ workload: `after ${step} steps`, gpuBytes, wasmBytes });
    early ??= { gpuBytes, wasmBytes };
    if (gpuBytes > early.gpuBytes || wasmBytes > early.wasmBytes)
      throw new Error(`memory grew between step 100 and step ${step}`);
  }
  model.free();
}

/** How a step's time grows with tokens and with layers, and memory with steps. */
async function growth(tinyloom, runtime, { only, steps }, record) {
  const shapes = [
    ...[1, 2, 4, 8, 16].map((documents) => ({ documents, layers: 12 })),
    ...[3, 6, 24].map((layers) => ({ documents: 1, layers })),
  ];
  for (const { documents, layers } of shapes) {
    const workload = `seed, ${layers} layers, ${documents * CONFIGS.seed.tokens} tokens`;
    if (!workload.includes(only)) continue;
    const { milliseconds, operations } = await train(tinyloom, runtime, "seed", {
      steps,
      documents,
      layers,
    });
    const microsecondsPerGigaflop = (milliseconds * 1e3) / (operations / 1e9);
    record({ workload, milliseconds, microsecondsPerGigaflop });
  }
  if ("after steps".includes(only)) await endure(tinyloom, runtime, record);
}

/**
 * Everything, in order; `only` keeps the workloads whose names contain it, or that are in it if it is a list.
 *
 * @param load - imports the package.
 * @param options.beforeTuning - called before the first runtime that measures tiles.
 */
export async function runAll(
  load,
  gpu,
  {
    suite = "models",
    only = "",
    profile = false,
    steps = 40,
    limits = "adapter",
    beforeTuning = () => {},
  } = {},
  report = () => {},
) {
  const results = [];
  let allows = {};
  const record = (result) => {
    results.push({ ...result, ...shares(result, allows) });
    report(results.at(-1));
  };
  if (suite === "start") record(await start(load, gpu, limits));
  const tinyloom = await load();
  const runtime = await tinyloom.Runtime.create({ gpu, limits });
  allows = await measureDevice(runtime);
  if (allows.peakTeraflops) {
    const { peakTeraflops, copyGigabytesPerSecond } = allows;
    const note = `arithmetic reaches ${peakTeraflops.toFixed(1)} TFLOP/s, a copy ${copyGigabytesPerSecond.toFixed(0)} GB/s, read and written`;
    report({ note });
  }
  if (suite === "models") await everyModel(tinyloom, runtime, { only, profile, steps }, record);
  if (suite === "growth") await growth(tinyloom, runtime, { only, steps }, record);
  const { adapter, features, limits: chosen, software, subgroupSize } = runtime.capabilities;
  runtime.destroy();
  if (suite === "models" && !software) {
    beforeTuning();
    const tuning = await tinyloom.Runtime.create({ gpu, limits, tune: true });
    await everyTraining(tinyloom, tuning, TUNED, { only, profile, steps }, record);
    tuning.destroy();
  }
  return { adapter, software, features, subgroupSize, limits: chosen, ...allows, results };
}

/** What the device's arithmetic and memory allow, where it has timestamps to tell. */
async function measureDevice({ device, capabilities }) {
  if (capabilities.software || !device.features.has("timestamp-query")) return {};
  return {
    peakTeraflops: await arithmeticPeak(device),
    copyGigabytesPerSecond: await copyBandwidth(device),
  };
}

/** The share of the device's peak that a row reaches. */
function shares({ teraflops, gigabytesPerSecond }, { peakTeraflops, copyGigabytesPerSecond }) {
  return {
    ...(teraflops && peakTeraflops ? { shareOfPeak: teraflops / peakTeraflops } : {}),
    ...(gigabytesPerSecond && copyGigabytesPerSecond
      ? { shareOfCopy: gigabytesPerSecond / copyGigabytesPerSecond }
      : {}),
  };
}

const isChosen = (workload, only) =>
  Array.isArray(only) ? only.includes(workload) : workload.includes(only);

async function everyTraining(tinyloom, runtime, trained, { only, profile, steps }, record) {
  for (const [name, options] of trained) {
    if (isChosen(trainName(name, options), only))
      record(await train(tinyloom, runtime, name, { steps, profile, ...options }));
  }
}

/** Training and decoding of the reference configurations, and memory. */
async function everyModel(tinyloom, runtime, settings, record) {
  const { only } = settings;
  await everyTraining(tinyloom, runtime, TRAINED, settings, record);
  for (const [name, options] of DECODED) {
    if (isChosen(decodeName(name, options), only))
      record(await decode(tinyloom, runtime, name, options));
  }
  for (const tokens of LENGTHS) {
    if (isChosen(`memory ${tokens}`, only)) record(await memory(tinyloom, runtime, tokens));
  }
}
