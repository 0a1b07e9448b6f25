/** What is changed of tensors on the way to llama.cpp, and back. */

import { transpose } from "../transpose.js";
import type { Change, Elements, GgufNames } from "./family.js";

/**
 * Rows in another order.
 *
 * @param from - the row that comes to each place.
 */
function reordered<E extends Elements>(
  values: E,
  columns: number,
  from: (row: number, rows: number) => number,
): E {
  const back = values.slice() as E;
  const rows = values.length / columns;
  for (let row = 0; row < rows; row++) {
    const at = from(row, rows) * columns;
    back.set(values.subarray(at, at + columns), row * columns);
  }
  return back;
}

/** Of a place in llama.cpp's order of a head the row in transformers', and back. */
const paired = (row: number, rows: number) => (row % 2) * (rows / 2) + Math.floor(row / 2);
const unpaired = (row: number, rows: number) =>
  2 * (row % (rows / 2)) + Math.floor(row / (rows / 2));

/**
 * Pairs of the rotary embedding side by side: llama.cpp's Llama rotates elements 2i and 2i + 1 of a head,
 * transformers' i and i + head_dim / 2.
 */
const PAIRS: Change = {
  together: ({ head_dim }) => head_dim as number,
  change: (values, columns) => reordered(values, columns, paired),
  undo: (values, columns) => reordered(values, columns, unpaired),
  moveBack: (values, columns) => reordered(values, columns, unpaired),
};

/** llama.cpp's norms multiply by the weight, Gemma's by 1 + the weight. */
const PLUS_ONE: Change = {
  together: () => 1,
  change: (values) => values.map((value) => value + 1),
  undo: (values) => values.map((value) => value - 1),
};

/** Rows by outputs: GPT-2's checkpoints have them by inputs. Biases are one column, which stays as it is. */
const TRANSPOSED: Change = {
  shape: (stored) => [...stored].reverse(),
  change: transpose,
  undo: transpose,
};

/** All queries, then all keys, then all values: GPT-NeoX's checkpoints have them head by head. */
const STACKED: Change = {
  change: (values, columns, { head_dim }) =>
    reordered(values, columns, (row, rows) => {
      const [block, within] = [Math.floor(row / (head_dim as number)), row % (head_dim as number)];
      const heads = rows / (head_dim as number) / 3;
      return (3 * (block % heads) + Math.floor(block / heads)) * (head_dim as number) + within;
    }),
  undo: (values, columns, { head_dim }) =>
    reordered(values, columns, (row, rows) => {
      const [block, within] = [Math.floor(row / (head_dim as number)), row % (head_dim as number)];
      const heads = rows / (head_dim as number) / 3;
      return ((block % 3) * heads + Math.floor(block / 3)) * (head_dim as number) + within;
    }),
};

export const CHANGES: { readonly [name in GgufNames["changes"][string]]: Change } = {
  pairs: PAIRS,
  "plus-one": PLUS_ONE,
  transposed: TRANSPOSED,
  stacked: STACKED,
};
