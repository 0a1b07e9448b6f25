/** Reads a trainer's gradients back. */

import { throwIfAborted } from "./error.js";
import { type LongOptions, report, reported } from "./progress.js";
import type { RawTrainer } from "./raw-types.js";
import { readAhead } from "./readback.js";

/** The gradients of the last step by name. */
export async function gradients(
  raw: RawTrainer,
  options: LongOptions,
): Promise<{ [name: string]: Float32Array }> {
  throwIfAborted(options.signal, "gradients");
  const tensors = JSON.parse(raw.gradientSizes()) as [string, number][];
  const sizes = tensors.map(([, size]) => size);
  const result: { [name: string]: Float32Array } = {};
  const total = sizes.reduce((sum, size) => sum + size, 0);
  let [index, loaded] = [0, 0];
  const step = () => {
    throwIfAborted(options.signal, "gradients");
    report(options, { loaded, total, stage: "read gradients" });
  };
  for await (const one of readAhead(sizes, (at) => raw.readGradient(at))) {
    step();
    result[(tensors[index++] as [string, number])[0]] = one;
    loaded += one.byteLength;
  }
  step();
  await reported(options);
  return result;
}
