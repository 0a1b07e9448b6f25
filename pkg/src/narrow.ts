/** Weights in 16-bit floats: made of the f32 that is read back, piece by piece. */

import { toHalf } from "./half.js";
import type { Dtype } from "./notes.js";
import { invalid } from "./options.js";
import type { RawWriter } from "./raw-types.js";
import { framed, PREFIX, parse, SHORT, turns } from "./safetensors.js";

type Narrow = Exclude<Dtype, "f32">;

/** The names in safetensors headers and in configs. */
const NAMES = { f32: "float32", f16: "float16", bf16: "bfloat16" };

/** A config's text with the element type that its weights are written in. */
export function configIn(dtype: Dtype, config: string): string {
  // Of the module's own text: what else a file had keeps its spelling.
  return config.replace(
    /^( {2}"(?:torch_)?dtype": )"float32"/gm,
    (_, field) => `${field}"${NAMES[dtype]}"`,
  );
}

/** The same tensors in 16 bits each. */
export function narrowed(weights: RawWriter, dtype: Narrow): RawWriter {
  const { metadata, order } = parse(weights.saveHeader().subarray(PREFIX));
  let end = 0;
  const entries = order.map(([name, { shape, data_offsets }]) => {
    const begin = end;
    end += (data_offsets[1] - data_offsets[0]) / 2;
    return [name, { dtype: dtype.toUpperCase(), shape, data_offsets: [begin, end] }] as const;
  });
  const turn = turns(SHORT);
  let last: Promise<unknown> = Promise.resolve();
  const header = framed({ __metadata__: metadata, ...Object.fromEntries(entries) });
  return {
    saveHeader: () => header,
    tensorCount: () => weights.tensorCount(),
    readPiece(index, begin, end) {
      const reading = weights.readPiece(index, 2 * begin, 2 * end);
      reading.catch(() => undefined); // it is awaited below
      // One after the other: several that were read together would be one long piece of work.
      const made = last.then(async () => {
        const bytes = await reading;
        await turn();
        return narrow(bytes, dtype, order[index]?.[0] as string);
      });
      last = made.catch(() => undefined);
      return made;
    },
  };
}

/** Numbers of 32 bits in 16, to the nearest, ties to even. */
function narrow(bytes: Uint8Array, dtype: Narrow, tensor: string): Uint8Array {
  const aligned = bytes.byteOffset % 4 === 0 ? bytes : bytes.slice();
  const count = bytes.length / 4;
  const words = new Uint32Array(aligned.buffer, aligned.byteOffset, count);
  const values = new Float32Array(aligned.buffer, aligned.byteOffset, count);
  const out = new Uint16Array(count);
  const infinite = dtype === "f16" ? 0x7c00 : 0x7f80;
  for (let at = 0; at < count; at++) {
    const word = words[at] as number;
    const made = dtype === "f16" ? toHalf(values[at] as number) : toBrain(word);
    if ((made & 0x7fff) === infinite && (word & 0x7fff_ffff) < 0x7f80_0000) {
      throw invalid(
        `save: tensor ${tensor} has ${values[at]}, which ${NAMES[dtype]} cannot hold; give dtype: "f32"` +
          (dtype === "f16" ? ' or "bf16"' : ""),
      );
    }
    out[at] = made;
  }
  return new Uint8Array(out.buffer);
}

/** The upper half of a float, rounded. */
function toBrain(word: number): number {
  if ((word & 0x7fff_ffff) > 0x7f80_0000) return (word >>> 16) | 0x40;
  return (word + 0x7fff + ((word >>> 16) & 1)) >>> 16;
}
