// What a page of `compare.mjs` runs: the same work by two builds, in turns within the page.
import configs from "./configs.json" with { type: "json" };
import {
  batch,
  CONFIGS,
  createDecoding,
  createTraining,
  decodeName,
  queued,
  trainName,
  warm,
} from "./workloads.mjs";

/** What a row measures, by its `kind`: a subject is made of each build, and each block runs its measures. */
const KINDS = {
  train: training,
  decode: decoding,
  batch: batches,
  prompt: prompts,
  adapter: adapters,
  cold,
};

/**
 * Measures each row by blocks. A block measures every build once; the build that begins changes per block, so that
 * a clock or a scheduler that drifts slows all alike.
 *
 * @param packages - the imported package of each build, by name.
 * @param rows - `{ kind, model, documents?, precision?, weights?, texts?, tokens?, rank? }` each.
 * @param options.blocks - blocks per row. @param options.steps - training steps per block and build.
 * @param options.runtime - of Runtime.create.
 * @returns milliseconds of each block, by workload and build, and the adapter.
 */
export async function alternate(packages, rows, { blocks, steps, runtime }) {
  const runtimes = {};
  for (const [name, tinyloom] of Object.entries(packages))
    runtimes[name] = await tinyloom.Runtime.create(runtime);
  const names = Object.keys(packages);
  const milliseconds = {};
  for (const row of rows) {
    const subjects = {};
    for (const name of names)
      subjects[name] = await KINDS[row.kind](packages[name], runtimes[name], row, {
        steps,
        runtime,
      });
    for (let block = 0; block < blocks; block++) {
      for (const name of block % 2 ? [...names].reverse() : names) {
        for (const [workload, measure] of Object.entries(subjects[name].measures)) {
          milliseconds[workload] ??= Object.fromEntries(names.map((build) => [build, []]));
          milliseconds[workload][name].push(await measure());
        }
      }
    }
    for (const name of names) await subjects[name].model?.free();
  }
  const { adapter } = Object.values(runtimes)[0].capabilities;
  for (const runtime of Object.values(runtimes)) runtime.destroy();
  return { adapter, milliseconds };
}

/** A warm trainer: milliseconds of a step whose loss is awaited (median), and of one queued ahead (mean). */
async function training(tinyloom, runtime, { model: name, kind: _, ...options }, { steps }) {
  const { model, awaited, ahead } = await createTraining(tinyloom, runtime, name, options);
  await warm(async () => {
    await awaited(steps);
    await ahead(steps);
  });
  const workload = trainName(name, options);
  return {
    model,
    measures: { [workload]: () => awaited(steps), [`${workload}, ahead`]: () => ahead(steps) },
  };
}

/** A warm model: milliseconds per decoded token behind its prompt. */
async function decoding(tinyloom, runtime, { model: name, weights }) {
  const { model, perToken } = await createDecoding(tinyloom, runtime, name, { weights });
  await warm(perToken);
  return { model, measures: { [decodeName(name, { weights })]: perToken } };
}

/** Milliseconds between two steps of several texts at once, each behind a prompt of its own. */
async function batches({ Model }, runtime, { model: name, texts, weights }) {
  const { config } = CONFIGS[name];
  const model = await Model.create(runtime, config, { seed: 1 });
  const prompts = Array.from({ length: texts }, (_, seed) => ({
    prompt: batch(128 + seed, config.vocab_size).tokens.slice(seed),
    seed,
  }));
  const perStep = async () => {
    let [count, first] = [0, 0];
    const options = { maxTokens: 129, temperature: 0.8, stopTokens: [], weights };
    for await (const _ of model.generateBatch(prompts, options))
      if (++count === texts) first = performance.now();
    return (performance.now() - first) / (count / texts - 1);
  };
  await warm(perStep);
  return { model, measures: { [`batch of ${texts}, ${name}`]: perStep } };
}

/** Milliseconds from a prompt of so many tokens to the first drawn token. */
async function prompts({ Model }, runtime, { model: name, tokens, weights }) {
  const { config } = configs[name];
  const model = await Model.create(runtime, config, { seed: 1 });
  const prompt = batch(tokens, config.vocab_size).tokens;
  const read = async () => {
    // Another beginning each time: a model keeps the keys and values of its last text.
    prompt[0] = (prompt[0] + 1) % config.vocab_size;
    const began = performance.now();
    for await (const _ of model.generate(prompt, {
      maxTokens: 1,
      seed: 0,
      stopTokens: [],
      weights,
    }));
    return performance.now() - began;
  };
  await warm(read);
  return { model, measures: { [`prompt of ${tokens}, ${name} ${weights}`]: read } };
}

/** A warm trainer of an adapter, over weights in f32 or packed ones. */
async function adapters(tinyloom, runtime, row, { steps }) {
  const { Adapter, Trainer } = tinyloom;
  const { model: name, rank = 8, precision = "f32" } = row;
  const { config, tokens: usual } = configs[name];
  const tokens = row.tokens ?? usual;
  const model = await base(tinyloom, runtime, config, row.weights);
  const adapter = await Adapter.create(model, { rank, targets: "all-linear" });
  const trainer = await Trainer.create(adapter, { tokensPerStep: tokens, precision });
  const ahead = queued(tinyloom, trainer, { length: tokens, vocabulary: config.vocab_size });
  await warm(() => ahead(steps));
  const what = [`adapter on ${name}`, row.weights ?? precision, `${tokens} tokens`].join(", ");
  return { model, measures: { [`${what}, ahead`]: () => ahead(steps) } };
}

/** A model of random weights, packed where `weights` says so. */
async function base({ Model }, runtime, config, weights) {
  const source = await Model.create(runtime, config, { seed: 1 });
  if (!weights) return source;
  const files = await source.save();
  await source.free();
  return Model.fromPretrained(runtime, files, { weights });
}

/** Milliseconds of a first step and of a first token, each from a runtime on. Drivers keep pipelines of earlier runs. */
async function cold(tinyloom, _, { model: name }, { runtime: options }) {
  const { config, tokens } = CONFIGS[name];
  const timed = async (work) => {
    const began = performance.now();
    const runtime = await tinyloom.Runtime.create(options);
    const model = await tinyloom.Model.create(runtime, config, { seed: 1 });
    await work(model);
    const milliseconds = performance.now() - began;
    runtime.destroy();
    return milliseconds;
  };
  const step = async (model) => {
    const trainer = await tinyloom.Trainer.create(model, { tokensPerStep: tokens });
    await trainer.step(batch(tokens, config.vocab_size));
  };
  const token = async (model) => {
    const prompt = batch(128, config.vocab_size).tokens;
    for await (const _ of model.generate(prompt, { maxTokens: 1, seed: 0, stopTokens: [] }));
  };
  return {
    measures: {
      [`first step of ${name}`]: () => timed(step),
      [`first token of ${name}`]: () => timed(token),
    },
  };
}
