/** Calls as they cross to the module: numbers, which `crates/kernels/src/ops/fields.rs` reads and judges. A test compares both. */

/** Operations by number. */
export const OPERATION = { forward: 0, backward: 1, decode: 2, softmax: 3 } as const;

/** Tensors by the number of their field. */
export const ROLE = {
  query: 0,
  input: 0, // of softmax
  key: 1,
  value: 2,
  output: 3,
  logsumexp: 4,
  dOutput: 5,
  dQuery: 6,
  dKey: 7,
  dValue: 8,
} as const;

/** What else is asked, by the number of its field. */
export const FIELD = {
  causal: 16,
  window: 17,
  scale: 18,
  softCap: 19,
  queryOffset: 20,
  queryOffsets: 21,
  documents: 22,
  documentsOfItem: 23,
  keyLengths: 24,
  tree: 25,
  treePerItem: 26,
  boolean: 27,
  additive: 28,
} as const;

/** The fields of one call. */
export class Fields {
  readonly #numbers: number[] = [];

  /** Adds a field; its values are copied. */
  add(field: number, values: ArrayLike<number>): void {
    this.#numbers.push(field, values.length);
    for (let at = 0; at < values.length; at++) this.#numbers.push(values[at] as number);
  }

  /** All of them: the number of each, how many values it has, and these. */
  get numbers(): Float64Array {
    return Float64Array.from(this.#numbers);
  }
}
