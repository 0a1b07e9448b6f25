/** One adapter or several that a call reads a model with. */

import type { AdapterOption, WeightedAdapter } from "./adapter-types.js";
import { type InnerModel, models } from "./internal.js";
import { deferredPart } from "./lazy.js";
import { copied, invalid } from "./options.js";
import type { RawHandle } from "./raw-handle.js";
import type { RawModel } from "./raw-types.js";

/** What a call was given. */
interface Adapted {
  readonly adapter?: AdapterOption | undefined;
  readonly adapters?: readonly WeightedAdapter[] | undefined;
}

type Handle = RawHandle<RawModel>;

/** What a model is read by, as the call was given it: the model alone, an adapter over it, or adapters to be summed. */
export type Over = readonly [model: InnerModel, by: Handle | readonly WeightedAdapter[]];

export function overOf(model: InnerModel, { adapter, adapters }: Adapted): Over {
  if (adapters && adapter) throw invalid("adapter and adapters are both given; give one of them");
  if (adapters) return [model, copied(adapters)];
  const { base, handle } = adapter ? models.of(adapter) : model;
  if (!adapter || base === model) return [model, handle];
  throw invalid("adapter is of another model; give one that was created on this model");
}

/** Does work with the model's own handle or an adapter's; a sum of adapters lives as long as the work. */
export async function withOver<T>(over: Over, work: (handle: Handle) => Promise<T>): Promise<T> {
  const [handle, end] = Array.isArray(over[1]) ? await summed(over) : [over[1] as Handle];
  return work(handle).finally(end);
}

/** The same of tokens as they are drawn. */
export async function* drawnOver<T>(
  over: Over,
  draw: (handle: Handle) => AsyncGenerator<T, void, undefined>,
): AsyncGenerator<T, void, undefined> {
  const [handle, end] = Array.isArray(over[1]) ? await summed(over) : [over[1] as Handle];
  try {
    yield* draw(handle);
  } finally {
    end?.();
  }
}

async function summed([model, by]: Over): Promise<[Handle, () => void]> {
  const sum = await (await deferredPart()).sumOfAdapters(model, by as WeightedAdapter[]);
  return [sum.handle, () => sum.end()];
}
