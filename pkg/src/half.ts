/** 16-bit floats on the host: one sign, five exponent and ten fraction bits. */

import { invalid } from "./options.js";

const number = new Float32Array(1);
const word = new Uint32Array(number.buffer);

/** Bits of a half whose fraction and exponent mean infinity. */
const INFINITE = 0x7c00;

/**
 * The nearest half of a number that f32 holds, ties to even; beyond 65,519 infinity.
 */
export function toHalf(value: number): number {
  number[0] = value;
  const bits = word[0] as number;
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = bits & 0x7fff_ffff;
  if (magnitude > 0x7f80_0000) return sign | 0x7e00;
  if (magnitude < 0x3880_0000) {
    // Below the normal halves, which are multiples of 2⁻²⁴ there: so are the floats from 0.5 on.
    number[0] = Math.abs(number[0] as number) + 0.5;
    return sign | ((word[0] as number) - 0x3f00_0000);
  }
  const rounded = magnitude + 0xfff + ((magnitude >>> 13) & 1);
  return sign | Math.min((rounded - 0x3800_0000) >>> 13, INFINITE);
}

/**
 * Numbers as halves.
 *
 * @param where - the call and the argument, for the message.
 * @throws {@link TinyloomError} `invalid-options` when a finite number is beyond ±65,504.
 */
export function toHalves(where: string, values: Float32Array): Uint16Array<ArrayBuffer> {
  const halves = new Uint16Array(values.length);
  for (let index = 0; index < values.length; index++) {
    const value = values[index] as number;
    const half = toHalf(value);
    if ((half & 0x7fff) === INFINITE && Number.isFinite(value)) {
      throw invalid(
        `${where}[${index}] is ${value}; "f16" holds at most ±65504, so scale it down or use "f32"`,
      );
    }
    halves[index] = half;
  }
  return halves;
}

/** Halves as numbers, exactly. */
export function fromHalves(halves: Uint16Array): Float32Array<ArrayBuffer> {
  const values = new Float32Array(halves.length);
  const bits = new Uint32Array(values.buffer);
  for (let index = 0; index < halves.length; index++) {
    const half = halves[index] as number;
    const [exponent, fraction] = [(half >>> 10) & 0x1f, half & 0x3ff];
    if (exponent === 0) {
      values[index] = fraction * 2 ** -24 * (half & 0x8000 ? -1 : 1);
      continue;
    }
    const wide = exponent === 0x1f ? 0xff : exponent + 112;
    bits[index] = ((half & 0x8000) << 16) | (wide << 23) | (fraction << 13);
  }
  return values;
}
