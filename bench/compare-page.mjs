// What a page of `compare.mjs` runs: the same work by two builds, in turns within the page.
import { createDecoding, createTraining, decodeName, trainName, warm } from "./workloads.mjs";

/**
 * Measures each row by blocks. A block measures every build once; the build that begins changes per block, so that
 * a clock or a scheduler that drifts slows all alike.
 *
 * @param packages - the imported package of each build, by name.
 * @param rows - `{ model, documents?, precision?, decodes?, weights? }` each.
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
async function training(tinyloom, runtime, { model: name, ...options }, steps) {
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
