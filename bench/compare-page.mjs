// What a page of `compare.mjs` runs: the same work by two builds, in turns within the page.
import { batch, CONFIGS, median, WARM_UP } from "./workloads.mjs";

/** Tokens that a decoding block writes behind its prompt. */
const DECODED = 256;

/**
 * Measures each row by blocks. A block measures every build once; the build that begins changes per block, so that
 * a clock or a scheduler that drifts slows all alike.
 *
 * @param packages - the imported package of each build, by name.
 * @param rows - `{ model, documents?, decodes? }` each.
 * @param options.blocks - blocks per row. @param options.steps - training steps per block and build.
 * @returns milliseconds of each block, by workload and build, and the adapter.
 */
export async function alternate(packages, rows, { blocks, steps }) {
  const runtimes = {};
  for (const [name, tinyloom] of Object.entries(packages))
    runtimes[name] = await tinyloom.Runtime.create();
  const names = Object.keys(packages);
  const milliseconds = {};
  for (const row of rows) {
    const subjects = {};
    for (const name of names)
      subjects[name] = await (row.decodes ? decoding : training)(
        packages[name],
        runtimes[name],
        row,
        steps,
      );
    for (let block = 0; block < blocks; block++) {
      for (const name of block % 2 ? [...names].reverse() : names) {
        for (const [workload, measure] of Object.entries(subjects[name].measures)) {
          milliseconds[workload] ??= Object.fromEntries(names.map((build) => [build, []]));
          milliseconds[workload][name].push(await measure());
        }
      }
    }
    for (const name of names) await subjects[name].model.free();
  }
  const { adapter } = Object.values(runtimes)[0].capabilities;
  for (const runtime of Object.values(runtimes)) runtime.destroy();
  return { adapter, milliseconds };
}

/** A warm trainer: milliseconds of a step whose loss is awaited (median), and of one queued ahead (mean). */
async function training(tinyloom, runtime, { model: name, documents = 1 }, steps) {
  const { config, tokens } = CONFIGS[name];
  const length = documents * tokens;
  const model = await tinyloom.Model.create(runtime, config, { seed: 1 });
  const trainer = await tinyloom.Trainer.create(model, {
    tokensPerStep: length,
    learningRate: 3e-4,
    schedule: "constant",
  });
  const data = batch(length, config.vocab_size, documents);
  const dataset = await tinyloom.Dataset.fromTokens(batch(4 * length, config.vocab_size).tokens, {
    sequenceLength: tokens,
    validationFraction: 0,
  });
  const awaited = async () => {
    const times = [];
    for (let i = 0; i < steps; i++) {
      const began = performance.now();
      await trainer.step(data);
      times.push(performance.now() - began);
    }
    return median(times);
  };
  const ahead = async () => {
    const began = performance.now();
    for await (const _ of trainer.run(dataset, { steps, stepsAhead: 4 }));
    return (performance.now() - began) / steps;
  };
  await warm(async () => {
    await awaited();
    await ahead();
  });
  const workload = `train ${name}${documents > 1 ? ` x ${documents}` : ""}`;
  return { model, measures: { [workload]: awaited, [`${workload}, ahead`]: ahead } };
}

/** A warm model: milliseconds per decoded token behind a prompt of 128. */
async function decoding(tinyloom, runtime, { model: name }) {
  const { config } = CONFIGS[name];
  const model = await tinyloom.Model.create(runtime, config, { seed: 1 });
  const prompt = batch(128, config.vocab_size).tokens;
  const draw = async (maxTokens) => {
    const began = performance.now();
    for await (const _ of model.generate(prompt, { maxTokens, temperature: 0.8 }));
    return performance.now() - began;
  };
  const token = async () => {
    const first = await draw(1);
    return ((await draw(DECODED + 1)) - first) / DECODED;
  };
  await warm(token);
  return { model, measures: { [`decode ${name}`]: token } };
}

/** An idle GPU has lowered its clock. */
async function warm(work) {
  const end = performance.now() + WARM_UP;
  while (performance.now() < end) await work();
}
