// What several cases of storage.mjs begin with.
import { collect, config, dataset, trainerOptions } from "../../api/bodies/kit.mjs";

/** A trainer of a fresh model, and data for it. */
export async function fresh({ tinyloom, runtime }) {
  const model = await tinyloom.Model.create(runtime, config, { seed: 5 });
  const trainer = await tinyloom.Trainer.create(model, trainerOptions);
  return { model, trainer, data: await dataset(tinyloom) };
}

export const lossesOf = (metrics) => metrics.map(({ loss }) => loss);

/** A run with whole checkpoints of steps 2 and 4, and the files of both saves. */
export async function twoCheckpoints(context, runs, name) {
  const { trainer, data, model } = await fresh(context);
  const run = await runs.create(name, { data: "the data", tokenizer: "{}", options: { a: [1] } });
  await collect(trainer.run(data, { steps: 4, checkpoint: { run, every: 2, keep: 2 } }));
  await model.free();
  return run;
}

/** Resumes, and gives the step that it goes on from. */
export async function stepOf({ tinyloom, runtime }, run) {
  const trainer = await tinyloom.Trainer.resume(runtime, run);
  const { steps } = trainer;
  await trainer.model.free();
  return steps;
}
