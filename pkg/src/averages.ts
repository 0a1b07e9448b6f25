/** The average of weights, which stands where the weights are for as long as something reads it. */

import { saveWeights } from "./checkpoint-writer.js";
import type { InnerModel } from "./internal.js";
import type { RawHandle } from "./raw-handle.js";
import type { RawTrainer } from "./raw-types.js";
import { DTYPE, saveOptions } from "./save-options.js";
import type { DtypeOptions, SaveOptions } from "./save-types.js";

/** Work in a trainer's turn with averages in the place of the weights, which come back to the bit. */
export async function exchanged<T>(raw: RawTrainer, work: () => Promise<T>): Promise<T> {
  await raw.exchangeAverages();
  try {
    return await work();
  } finally {
    await raw.exchangeAverages();
  }
}

/** {@link Trainer.saveAveraged}. */
export function saveAveraged<T>(
  trainer: RawHandle<RawTrainer>,
  { handle, names, notes }: InnerModel,
  options: SaveOptions & DtypeOptions,
): Promise<T> {
  const chosen = saveOptions(options, names, DTYPE);
  return trainer.run(
    (raw) => exchanged(raw, () => saveWeights<T>(chosen, { names, notes }, handle.raw)),
    chosen.signal,
  );
}
