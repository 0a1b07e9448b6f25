/** Parameters of a model, read and set by their names in its checkpoint. */

import type { InnerModel } from "./internal.js";
import { inspect, invalid, show } from "./options.js";

/** Refuses what is no name, for callers without types. */
export function nameOf(where: string, name: unknown): string {
  if (typeof name === "string") return name;
  throw invalid(`${where} takes the name of a parameter, not ${show(name)}`);
}

/** A copy of the numbers. */
export function valuesOf(where: string, values: unknown): Float32Array {
  return inspect(where, () => {
    const numbers =
      values instanceof Float32Array ||
      values instanceof Float64Array ||
      (Array.isArray(values) && values.every((value) => typeof value === "number"));
    if (numbers) return Float32Array.from(values as ArrayLike<number>);
    throw invalid(`${where} takes a Float32Array or an array of numbers, not ${show(values)}`);
  });
}

/** {@link Model.setParameter}. */
export async function setParameter(
  { handle, recovery }: InnerModel,
  name: string,
  values: Float32Array,
): Promise<void> {
  await handle.run(async (raw) => {
    const set = await recovery?.setting(name, values);
    await raw.writeNamed(name, values);
    set?.();
  });
}
