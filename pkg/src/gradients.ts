/** Reads a trainer's gradients back. */

import { throwIfAborted } from "./error.js";
import type { RawTrainer } from "./raw.js";
import { readAhead, tensorSizes } from "./readback.js";
import { type LongOptions, report } from "./source.js";

/** The gradients of the last step by name. */
export async function gradients(
  raw: RawTrainer,
  options: LongOptions,
): Promise<{ [name: string]: Float32Array }> {
  throwIfAborted(options.signal, "gradients");
  const names = JSON.parse(raw.gradientNames()) as string[];
  // A save begins with as many moments, of the same sizes.
  const sizes = tensorSizes(raw.saveHeader()).slice(0, names.length);
  const result: { [name: string]: Float32Array } = {};
  const total = sizes.reduce((sum, size) => sum + size, 0);
  let [index, loaded] = [0, 0];
  const step = () => {
    throwIfAborted(options.signal, "gradients");
    report(options, { loaded, total, stage: "read gradients" });
  };
  for await (const one of readAhead(sizes, (at) => raw.readGradient(at))) {
    step();
    result[names[index++] as string] = one;
    loaded += one.byteLength;
  }
  step();
  return result;
}
