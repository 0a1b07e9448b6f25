/** Parameters of a model, read and set by their names in its checkpoint. */

import type { InnerModel } from "./internal.js";
import { invalid, show } from "./options.js";

/** Refuses what is no name, for callers without types. */
function nameOf(where: string, name: unknown): string {
  if (typeof name === "string") return name;
  throw invalid(`${where} takes the name of a parameter, not ${show(name)}`);
}

function valuesOf(where: string, values: unknown): Float32Array {
  const numbers =
    values instanceof Float32Array ||
    values instanceof Float64Array ||
    (Array.isArray(values) && values.every((value) => typeof value === "number"));
  if (numbers) return Float32Array.from(values as ArrayLike<number>);
  throw invalid(`${where} takes a Float32Array or an array of numbers, not ${show(values)}`);
}

/** {@link Model.parameter}. */
export async function parameter({ handle }: InnerModel, name: unknown): Promise<Float32Array> {
  const own = nameOf("parameter", name);
  return handle.run((raw) => raw.readNamed(own));
}

/** {@link Model.setParameter}. */
export async function setParameter(
  { handle, recovery }: InnerModel,
  given: unknown,
  numbers: unknown,
): Promise<void> {
  const [name, values] = [nameOf("setParameter", given), valuesOf("setParameter", numbers)];
  await handle.run(async (raw) => {
    const set = await recovery?.setting(name, values);
    await raw.writeNamed(name, values);
    set?.();
  });
}
