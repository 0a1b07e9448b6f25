/** One adapter or several that a call reads a model with. */

import type { AdapterOption, WeightedAdapter } from "./adapter-types.js";
import { type InnerAdapter, type InnerModel, models } from "./internal.js";
import { deferredPart } from "./lazy.js";
import { inspect, invalid, type Rule } from "./options.js";
import type { RawHandle } from "./raw-handle.js";
import type { RawModel } from "./raw-types.js";

/** An adapter of a sum, and what it is multiplied by. */
export interface AdapterPart {
  readonly inner: InnerAdapter;
  readonly scale: number;
}

/** What a call was given. */
export interface Adapted {
  readonly adapter?: AdapterOption | undefined;
  readonly adapters?: readonly WeightedAdapter[] | undefined;
}

const FORM = "an array of { adapter, scale } with adapters of this model and finite scales";

/** Whose adapters they are, the call says. */
export const adapters: Rule = (value) =>
  Array.isArray(value) &&
  value.length > 0 &&
  value.length <= 64 &&
  value.every((one) => models.find(one?.adapter)?.base && Number.isFinite(one.scale ?? 1))
    ? undefined
    : FORM;

/** What a model is read by, as the call was given it: the model alone, an adapter over it, or adapters to be summed. */
export type Over = RawHandle<RawModel> | readonly AdapterPart[];

export function overOf(model: InnerModel, { adapter, adapters: several }: Adapted): Over {
  const inner = (one: unknown) => {
    const found = models.of(one as AdapterOption) as InnerAdapter;
    if (found.base === model) return found;
    throw invalid("adapter is of another model; give one that was created on this model");
  };
  if (several === undefined) return adapter ? inner(adapter).handle : model.handle;
  if (adapter) throw invalid("adapter and adapters are both given; give one of them");
  return inspect("adapters", () =>
    several.map(({ adapter: one, scale = 1 }) => ({ inner: inner(one), scale })),
  );
}

/** Does work with the model's own handle or an adapter's; a sum of adapters lives as long as the work. */
export async function withOver<T>(
  over: Over,
  work: (handle: RawHandle<RawModel>) => Promise<T>,
): Promise<T> {
  if (!Array.isArray(over)) return work(over as RawHandle<RawModel>);
  const sum = await (await deferredPart()).sumOfAdapters(over as readonly AdapterPart[]);
  try {
    return await work(sum.handle);
  } finally {
    sum.end();
  }
}

/** The same of tokens as they are drawn. */
export async function* drawnOver<T>(
  over: Over,
  draw: (handle: RawHandle<RawModel>) => AsyncGenerator<T, void, undefined>,
): AsyncGenerator<T, void, undefined> {
  if (!Array.isArray(over)) return yield* draw(over as RawHandle<RawModel>);
  const sum = await (await deferredPart()).sumOfAdapters(over as readonly AdapterPart[]);
  try {
    yield* draw(sum.handle);
  } finally {
    sum.end();
  }
}
