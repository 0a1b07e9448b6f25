/** How models are made, for the first time and again after a lost device; loaded with the device. */

import { loadWeights } from "./checkpoint-loader.js";
import type { openSource } from "./file-source.js";
import type { WeightFormat } from "./formats.js";
import type { ModelOptions } from "./model-types.js";
import { notesOf } from "./notes.js";
import type { LongOptions } from "./progress.js";
import type { Ask, RawModel, RawModule, RawRuntime, Seen } from "./raw-types.js";
import type { Origin } from "./recovery/origin.js";
import { MODEL_FILES } from "./save-types.js";
import { watched } from "./watch.js";

/** A model, and how it is made again. */
interface Made {
  readonly model: RawModel;
  readonly origin: Origin;
}

/** A model of random weights. */
export async function created(
  raw: RawRuntime,
  module: RawModule,
  config: string,
  { seed = 0, ...long }: ModelOptions,
): Promise<Made> {
  const create = (on: RawRuntime, by: LongOptions) =>
    watched("Model.create", by, (ask: Ask) => module.RawModel.create(on, config, seed, ask));
  const again = async (on: RawRuntime) => ({ model: await create(on, {}) });
  const origin: Origin = { again, seeded: true, notes: notesOf(config) };
  return { model: await create(raw, long), origin };
}

/** A model of a checkpoint's weights, in the format that is asked for. */
export async function loaded(
  raw: RawRuntime,
  module: RawModule,
  source: ReturnType<typeof openSource>,
  weights: WeightFormat | undefined,
  long: LongOptions,
): Promise<Made> {
  const coded = weights === "int8" || weights === "int4";
  const load = async (on: RawRuntime, by: LongOptions, seen: Seen) => {
    const loader = (config: string) => new module.RawLoader(on, config, weights);
    return loadWeights({ module, source, names: MODEL_FILES, coded, loader }, by, seen);
  };
  const seen: Seen = { sum: 0 };
  const model = await load(raw, long, seen);
  const again = async (on: RawRuntime, by: Seen) => ({ model: await load(on, {}, by) });
  return { model, origin: { again, seen, notes: seen.notes } };
}
