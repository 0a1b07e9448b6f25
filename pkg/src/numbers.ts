/** The numbers of a checkpoint's element types, from their bytes. */

import { fromHalves } from "./half.js";

/** Each gives an array of its own. */
export const NUMBERS: { readonly [dtype: string]: (bytes: Uint8Array) => Float32Array } = {
  F32: floats,
  F16: (bytes) => fromHalves(new Uint16Array(copied(bytes))),
  BF16: (bytes) => {
    const halves = new Uint16Array(copied(bytes));
    return new Float32Array(Uint32Array.from(halves, (high) => high << 16).buffer);
  },
};

/** The numbers of F32. */
export function floats(bytes: Uint8Array): Float32Array {
  return new Float32Array(copied(bytes));
}

/** The bytes in a buffer of their own, from its beginning. */
function copied(bytes: Uint8Array): ArrayBuffer {
  return new Uint8Array(bytes).buffer;
}
