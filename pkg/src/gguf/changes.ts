/** What is changed of tensors on the way to llama.cpp. */

import { transpose } from "../transpose.js";
import type { Change, GgufNames } from "./family.js";

/**
 * Pairs of the rotary embedding side by side: llama.cpp's Llama rotates elements 2i and 2i + 1 of a head,
 * transformers' i and i + head_dim / 2.
 */
const PAIRS: Change = {
  together: ({ head_dim }) => head_dim as number,
  change(values, columns) {
    const half = values.length / columns / 2;
    const changed = new Float32Array(values.length);
    for (let pair = 0; pair < half; pair++) {
      for (const side of [0, 1]) {
        const from = (side * half + pair) * columns;
        changed.set(values.subarray(from, from + columns), (2 * pair + side) * columns);
      }
    }
    return changed;
  },
};

/** llama.cpp's norms multiply by the weight, Gemma's by 1 + the weight. */
const PLUS_ONE: Change = {
  together: () => 1,
  change: (values) => values.map((value) => value + 1),
};

/** Rows by outputs: GPT-2's checkpoints have them by inputs. Biases are one column, which stays as it is. */
const TRANSPOSED: Change = {
  shape: (stored) => [...stored].reverse(),
  change: transpose,
};

/** All queries, then all keys, then all values: GPT-NeoX's checkpoints have them head by head. */
const STACKED: Change = {
  change(values, columns, { head_dim }) {
    const length = (head_dim as number) * columns;
    const heads = values.length / length / 3;
    const joined = new Float32Array(values.length);
    for (let head = 0; head < heads; head++) {
      for (let part = 0; part < 3; part++) {
        const from = (3 * head + part) * length;
        joined.set(values.subarray(from, from + length), (part * heads + head) * length);
      }
    }
    return joined;
  },
};

export const CHANGES: { readonly [name in GgufNames["changes"][string]]: Change } = {
  pairs: PAIRS,
  "plus-one": PLUS_ONE,
  transposed: TRANSPOSED,
  stacked: STACKED,
};
