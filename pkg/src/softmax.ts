import { tensors } from "./internal.js";
import { expectTensor, Operands } from "./operands.js";
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
  const where = "softmax";
  if (options.length > 0) {
    throw invalid(`${where} takes a tensor alone, and works along its last axis; transpose it`);
  }
  expectTensor(where, "input", input);
  const { shape, element, offset, strides } = input;
  const columns = shape[shape.length - 1] as number;
  const unit = columns % 4 === 0 ? 4 : element === "f16" ? 2 : 1;
  if (!tensors.of(input).contiguous || offset % unit !== 0) {
    throw invalid(
      `${where}: input has offset ${offset} and strides [${strides}]; give a tensor whose elements ` +
        `lie one after the other, from a multiple of ${unit} on`,
    );
  }
  const rows = shape.reduce((product, size) => product * size, 1) / columns;
  const operands = new Operands(where, { input });
  return operands.guard(async () => {
    const output = operands.output("output", undefined, input);
    const places = {
      input: { id: tensors.of(input).id(), offset },
      output: { id: tensors.of(output).id(), offset: output.offset },
    };
    const json = JSON.stringify({ ...places, rows, columns, element });
    await operands.run((raw) => raw.softmax(json));
    return output;
  });
}
