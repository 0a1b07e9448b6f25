import { OPERATION } from "./fields.js";
import { Operands } from "./operands.js";
import { invalid } from "./options.js";
import type { Tensor } from "./tensor.js";

/**
 * exp(x − largest) / Σ exp(x − largest) over the last axis, in f32 whatever the element. A row of
 * −Infinity alone gives zeros.
 *
 * @param input - a tensor of any rank whose elements lie one after the other. Where the last axis is a
 * multiple of 4 its offset is one too; else in `"f16"` it is even.
 * @param options - there are none.
 * @returns a new tensor of the input's shape and element, to free when done with.
 * @throws {@link TinyloomError} `invalid-options`, `freed`, `limit-exceeded`, `out-of-memory`.
 */
export async function softmax(input: Tensor, ...options: []): Promise<Tensor> {
  if (options.length > 0) {
    throw invalid("softmax takes a tensor alone, and works along its last axis; transpose it");
  }
  const operands = new Operands("softmax", { input });
  return (await operands.run(OPERATION.softmax, { output: input })).output;
}
