// What the bodies about a lost device share: runtimes that note their states, and trainers.
import { config, trainerOptions } from "../../api/bodies/kit.mjs";

/** A runtime that notes its states. Snapshots follow each other closely where they are wanted so. */
export async function recovering(
  { tinyloom, gpu },
  { eager = false, ...recover } = {},
  options = {},
) {
  const states = [];
  const runtime = await tinyloom.Runtime.create({
    gpu,
    ...options,
    recover: { ...recover, onState: (state) => states.push(state) },
  });
  if (eager) tinyloom.internal.runtimes.of(runtime).recovery.pace = { least: 0, share: 100 };
  return { runtime, states, of: (name) => states.filter(({ state }) => state === name) };
}

/** One runtime for the cases that leave it well: it keeps its kernels from one to the next. */
const shared = new Map();
export async function sharedRuntime(context) {
  const { tinyloom } = context;
  if (!shared.has(tinyloom)) shared.set(tinyloom, await recovering(context, { eager: true }));
  return shared.get(tinyloom);
}

export async function trained({ tinyloom }, runtime, options = {}) {
  const { Model, Trainer } = tinyloom;
  const model = await Model.create(runtime, config, { seed: 5 });
  return Trainer.create(model, { ...trainerOptions, ...options });
}
