/**
 * ggml's element types, bit for bit as the reference quantisers of ggml (`quantize_row_q8_0_ref`,
 * `quantize_row_q4_0_ref`) and the `gguf` package of Python write them: each step is rounded to f32.
 */

import { TinyloomError } from "../error.js";
import { toHalf } from "../half.js";
import { invalid } from "../options.js";

/** Formats of a file: what its matrices are stored in. */
export type GgufType = "f32" | "f16" | "q8_0" | "q4_0";

export interface Element {
  /** Its number in ggml. */
  readonly id: number;
  /** `general.file_type` of a file whose matrices are of it. */
  readonly file: number;
  /** Elements that are stored together. A row has to be a multiple. */
  readonly block: number;
  /** Bytes of a block. */
  readonly bytes: number;
  /** The largest magnitude that it holds. */
  readonly most: number;
  /** Writes whole blocks. */
  encode(values: Float32Array, out: Uint8Array): void;
}

/** Elements of a block of both quantised types. */
const BLOCK = 32;
/** The largest half. */
const HALF = 65_504;
const round = Math.fround;

export const ELEMENTS: { readonly [K in GgufType]: Element } = {
  f32: { id: 0, file: 0, block: 1, bytes: 4, most: Number.MAX_VALUE, encode: asF32 },
  f16: { id: 1, file: 1, block: 1, bytes: 2, most: HALF, encode: asF16 },
  q8_0: { id: 8, file: 7, block: BLOCK, bytes: 34, most: HALF * 127, encode: asQ8 },
  q4_0: { id: 2, file: 2, block: BLOCK, bytes: 18, most: HALF * 8, encode: asQ4 },
};

/** Bytes of a tensor of that shape. */
export const sizeOf = (shape: readonly number[], { block, bytes }: Element) =>
  (shape.reduce((all, length) => all * length, 1) / block) * bytes;

/**
 * Refuses what an element type cannot hold.
 *
 * @throws {@link TinyloomError} `non-finite`, or `invalid-options` for a number that is too large.
 */
export function expectHeld(name: string, values: Float32Array, { most }: Element): void {
  for (let at = 0; at < values.length; at++) {
    const value = values[at] as number;
    if (Math.abs(value) <= most) continue;
    if (Number.isFinite(value)) {
      throw invalid(
        `save: ${name} has the weight ${value}, and this type holds at most ±${most}; give type: "f32"`,
      );
    }
    throw new TinyloomError(
      "non-finite",
      `save: ${name} has the weight ${value}; go back to weights that are finite`,
    );
  }
}

function asF32(values: Float32Array, out: Uint8Array): void {
  out.set(new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
}

function asF16(values: Float32Array, out: Uint8Array): void {
  for (let at = 0; at < values.length; at++) put16(out, 2 * at, toHalf(values[at] as number));
}

function put16(out: Uint8Array, at: number, bits: number): void {
  out[at] = bits;
  out[at + 1] = bits >>> 8;
}

/**
 * One over a scale. 0 where the scale is 0, and where the inverse is no number: then the half that stands for
 * the scale is 0 too.
 */
function inverse(scale: number): number {
  const one = round(1 / scale);
  return Number.isFinite(one) ? one : 0;
}

/** A scale d as a half, then 32 signed bytes: x ≈ d · q, with d = max|x| / 127. */
function asQ8(values: Float32Array, out: Uint8Array): void {
  for (let from = 0, to = 0; from < values.length; from += BLOCK, to += 34) {
    let most = 0;
    for (let at = from; at < from + BLOCK; at++) {
      const magnitude = Math.abs(values[at] as number);
      if (magnitude > most) most = magnitude;
    }
    const scale = round(most / 127);
    const by = inverse(scale);
    put16(out, to, toHalf(scale));
    for (let at = 0; at < BLOCK; at++) {
      const x = round((values[from + at] as number) * by);
      // Half away from zero.
      out[to + 2 + at] = x < 0 ? -Math.floor(0.5 - x) : Math.floor(x + 0.5);
    }
  }
}

/**
 * A scale d as a half, then 16 bytes: x ≈ d · (q − 8), with the element of the largest magnitude at q = 0.
 * Low halves of the bytes are the block's first 16 elements.
 */
function asQ4(values: Float32Array, out: Uint8Array): void {
  const level = (value: number, by: number) =>
    Math.min(15, Math.floor(round(round(value * by) + 8.5)));
  for (let from = 0, to = 0; from < values.length; from += BLOCK, to += 18) {
    let most = 0;
    for (let at = from; at < from + BLOCK; at++) {
      const value = values[at] as number;
      if (Math.abs(value) > Math.abs(most)) most = value;
    }
    const scale = round(most / -8);
    const by = inverse(scale);
    put16(out, to, toHalf(scale));
    for (let at = 0; at < 16; at++) {
      const low = level(values[from + at] as number, by);
      out[to + 2 + at] = low | (level(values[from + 16 + at] as number, by) << 4);
    }
  }
}
