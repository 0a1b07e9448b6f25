/** Masks of attention: as users give them, and as they cross to the module. */

import { check, integer, invalid, object, oneOf, type Rules, show } from "./options.js";

/** Whole numbers of at least 0. */
export type WholeNumbers = Uint32Array | readonly number[];

/** Which keys each query of a speculated tree sees. */
export interface TreeMask {
  /**
   * One bit per pair of nodes. Bit `j % 32` of word `j / 32` of row i is set if node i sees node j; a
   * node sees itself. Each query has a row of `ceil(queries / 32)` words. Give one array for all batch
   * items, or an array with one per item.
   */
  readonly words: Uint32Array | readonly Uint32Array[];
}

/** Which keys each query sees: those whose element is not 0 or false. */
export interface BooleanMask {
  readonly data: Uint8Array | readonly boolean[];
  /** Broadcast to `[batch, heads, queries, keys]`: axes of 1, and axes left out in front. */
  readonly shape: readonly number[];
}

/** Numbers that are added to the scores, after scale and soft-cap. */
export interface AdditiveMask {
  /** Numbers from −1e6 to 1e6. −Infinity, and any number below −1e6, hides the key. */
  readonly data: Float32Array | readonly number[];
  /** Broadcast to `[batch, heads, queries, keys]`: axes of 1, and axes left out in front. */
  readonly shape: readonly number[];
}

/** Options that say which keys a query sees. With several options, a query sees the keys that all of them allow. */
export interface MaskOptions {
  /** A query sees no key after its own. Default false. The last query belongs to the last key, unless `queryOffset` says otherwise. */
  causal?: boolean;
  /**
   * A query sees the last `window` keys up to and including its own. Without `causal` it also sees the
   * next `window - 1`.
   */
  window?: number;
  /**
   * The position at which each position's document starts; no query sees another document. There must
   * be as many queries as keys. Give one list for all batch items, or a list per item.
   */
  documents?: WholeNumbers | readonly WholeNumbers[];
  /** How many keys of each batch item are in use, counted from the first. */
  keyLengths?: WholeNumbers;
  /**
   * Which key belongs to the first query: one number for all batch items, or one per item. Default
   * keys − queries, even if `keyLengths` are shorter. `causal` and `window` use it.
   */
  queryOffset?: number | readonly number[];
  /**
   * A tree of speculated tokens to verify. The last keys of the tensor belong to the queries, whatever
   * `keyLengths` say. A query sees those of them that its row of bits names, and every key before them.
   */
  tree?: TreeMask;
  /** Pairs of query and key. */
  boolean?: BooleanMask;
  /** Biases, such as ALiBi's. */
  additive?: AdditiveMask;
}

/** What masks are held against, in elements. */
export interface Sizes {
  readonly batch: number;
  readonly heads: number;
  readonly queryRows: number;
  readonly keyRows: number;
}

/** The part of a mask that is a matrix: strides in words, 0 where it is broadcast. */
interface RawDense {
  readonly kind: "bits" | "additive";
  readonly strides: readonly [batch: number, heads: number, rows: number];
  /** Keys before this one are no columns of it, and seen. */
  readonly keysFrom: number;
}

/** A mask as it crosses to the module. */
export interface RawMask {
  readonly causal: boolean;
  readonly window: number | null;
  /** One list, for every batch item, or one for each. */
  readonly documents: number[][] | null;
  readonly keyLengths: number[] | null;
  readonly queryOffset: number | number[] | null;
  readonly dense: RawDense | null;
}

const MOST = 0xffff_ffff;
/** Stands for −∞ in the kernels. */
const HIDDEN = -1e30;
/** Largest bias: the backward pass takes it from a sum in f32 again, which then has 0.06 left for the rest. */
const MOST_BIAS = 1e6;

const offset = integer(-(2 ** 30), 2 ** 30);

/** Rules of {@link MaskOptions}; what depends on sizes is for {@link packMask}. */
export const MASK: Rules<MaskOptions> = {
  causal: oneOf(true, false),
  window: integer(1, MOST),
  documents: (value) =>
    isList(value) ? undefined : "a Uint32Array, or an array of one for each batch item",
  keyLengths: (value) =>
    isList(value) ? undefined : "a Uint32Array or a list, a number for each batch item",
  queryOffset: (value) =>
    Array.isArray(value) ? undefined : offset(value) && `${offset(value)}, or a list of them`,
  tree: object,
  boolean: object,
  additive: object,
};

// What they hold is looked at beside the sizes.
const anything = () => undefined;
const TREE: Rules<TreeMask> = { words: anything };
const MATRIX: Rules<BooleanMask | AdditiveMask> = { data: anything, shape: anything };

const isList = (value: unknown) => Array.isArray(value) || value instanceof Uint32Array;

/**
 * The mask for the module, and the words of its dense part.
 *
 * @param where - the call, for the message.
 */
export function packMask(
  where: string,
  options: MaskOptions,
  sizes: Sizes,
): { mask: RawMask; data: Uint8Array } {
  const { causal = false, window, documents, keyLengths, queryOffset } = options;
  if (queryOffset !== undefined && !causal && window === undefined) {
    throw invalid(
      `${where}: queryOffset is ${show(queryOffset)} without causal or window; give one, or leave it out`,
    );
  }
  const packed = packDense(where, options, sizes);
  const mask = {
    causal,
    window: window ?? null,
    documents: documents === undefined ? null : documentLists(where, documents, sizes),
    keyLengths: keyLengths === undefined ? null : lengths(where, keyLengths, sizes),
    queryOffset: offsets(where, queryOffset ?? null, sizes),
    dense: packed?.dense ?? null,
  };
  const words = packed?.words ?? new Uint32Array(0);
  return { mask, data: new Uint8Array(words.buffer, words.byteOffset, words.byteLength) };
}

function offsets(where: string, given: number | readonly number[] | null, { batch }: Sizes) {
  if (given === null || typeof given === "number") return given;
  const what = `${where}: queryOffset`;
  return wholeNumbers(what, given, batch, "batch items", () => [-(2 ** 30), 2 ** 30]);
}

function lengths(where: string, given: WholeNumbers, { batch, keyRows }: Sizes): number[] {
  return wholeNumbers(`${where}: keyLengths`, given, batch, "batch items", () => [0, keyRows]);
}

/** Numbers within the bounds that `within` gives for an index. */
function wholeNumbers(
  what: string,
  given: unknown,
  count: number,
  of: string,
  within: (index: number) => readonly [low: number, high: number],
): number[] {
  if (!isList(given)) throw invalid(`${what} is ${show(given)}; give a Uint32Array`);
  const list = Array.from(given as ArrayLike<unknown>);
  if (list.length !== count) {
    throw invalid(`${what} has ${list.length} numbers; give ${count}, the number of ${of}`);
  }
  return list.map((value, index) => {
    const allowed = integer(...within(index))(value);
    if (allowed === undefined) return value as number;
    throw invalid(`${what}[${index}] is ${show(value)}; give ${allowed}`);
  });
}

function documentLists(
  where: string,
  given: WholeNumbers | readonly WholeNumbers[],
  { batch, queryRows, keyRows }: Sizes,
): number[][] {
  if (queryRows !== keyRows) {
    throw invalid(
      `${where}: documents needs as many queries as keys, and there are ${queryRows} and ${keyRows}; ` +
        "use a boolean mask",
    );
  }
  const nested = Array.isArray(given) && given.some((one) => typeof one !== "number");
  if (!nested) return [starts(`${where}: documents`, given, queryRows)];
  if (given.length !== batch) {
    throw invalid(
      `${where}: documents has ${given.length} lists; give one list, or ${batch}, one for each batch item`,
    );
  }
  return given.map((list, item) => starts(`${where}: documents[${item}]`, list, queryRows));
}

/** Starts of documents that follow one another: each position's is the one before's, or its own. */
function starts(what: string, given: unknown, rows: number): number[] {
  const list = wholeNumbers(what, given, rows, "positions", (index) => [0, index]);
  const at = list.findIndex((start, index) => start !== index && start !== list[index - 1]);
  if (at < 0) return list;
  throw invalid(
    `${what}[${at}] is ${list[at]}; give ${list[at - 1]}, as the position before, or ${at}, where a document begins`,
  );
}

interface Dense {
  readonly dense: RawDense;
  readonly words: Uint32Array;
}

function packDense(where: string, options: MaskOptions, sizes: Sizes): Dense | undefined {
  const { tree, boolean, additive } = options;
  const given = Object.entries({ tree, boolean, additive }).filter(([, one]) => one !== undefined);
  if (given.length > 1) {
    const names = given.map(([name]) => name).join(" and ");
    throw invalid(`${where}: ${names} are given; give one of them, with both put together in it`);
  }
  if (tree) return packTree(where, tree, sizes);
  if (boolean) return packBoolean(where, boolean, sizes);
  return additive && packAdditive(where, additive, sizes);
}

function packTree(where: string, tree: TreeMask, { batch, queryRows, keyRows }: Sizes): Dense {
  const { words } = check(`${where}: tree`, tree, TREE);
  if (queryRows > keyRows) {
    throw invalid(
      `${where}: tree has ${queryRows} queries and there are ${keyRows} keys; the last keys are the tree's own`,
    );
  }
  const shared = words instanceof Uint32Array;
  const lists: readonly unknown[] = shared ? [words] : Array.isArray(words) ? words : [];
  if (!shared && lists.length !== batch) {
    throw invalid(
      `${where}: tree.words is ${show(words)}; give a Uint32Array, or an array of ${batch}, one for each batch item`,
    );
  }
  const row = Math.ceil(queryRows / 32);
  const all = new Uint32Array(lists.length * queryRows * row);
  for (const [item, list] of lists.entries()) {
    if (!(list instanceof Uint32Array) || list.length !== queryRows * row) {
      const name = shared ? "tree.words" : `tree.words[${item}]`;
      const have = list instanceof Uint32Array ? `has ${list.length} words` : `is ${show(list)}`;
      throw invalid(
        `${where}: ${name} ${have}; give a Uint32Array of ${queryRows * row}, ${row} for each of ${queryRows} queries`,
      );
    }
    all.set(list, item * queryRows * row);
  }
  const strides = [shared ? 0 : queryRows * row, 0, row] as const;
  return { dense: { kind: "bits", strides, keysFrom: keyRows - queryRows }, words: all };
}

/** A mask's own axes: 1 where it is broadcast. */
interface Matrix {
  readonly rows: number;
  readonly columns: number;
  /** Elements from one batch item, head and query to the next, 0 where broadcast. */
  readonly axes: readonly [batch: number, heads: number, rows: number];
}

function matrix(
  what: string,
  shape: unknown,
  length: number,
  { batch, heads, queryRows, keyRows }: Sizes,
): Matrix {
  const full = [batch, heads, queryRows, keyRows];
  const given: unknown[] = Array.isArray(shape) ? shape : [];
  const own = [...Array<number>(Math.max(0, 4 - given.length)).fill(1), ...given] as number[];
  const fits =
    given.length >= 1 &&
    own.length === 4 &&
    own.every((size, axis) => size === 1 || size === full[axis]);
  if (!fits) {
    const shown = Array.isArray(shape) ? `[${shape.map(show).join(", ")}]` : show(shape);
    throw invalid(
      `${what}.shape is ${shown}; give one that broadcasts to [${full}] (batch, heads, queries, keys)`,
    );
  }
  const [items, ownHeads, rows, columns] = own as [number, number, number, number];
  const count = items * ownHeads * rows * columns;
  if (length !== count) {
    throw invalid(`${what}.data has ${length} elements and [${own}] has ${count}; give as many`);
  }
  const axes = [
    items === 1 ? 0 : ownHeads * rows,
    ownHeads === 1 ? 0 : rows,
    rows === 1 ? 0 : 1,
  ] as const;
  return { rows: items * ownHeads * rows, columns, axes };
}

const scaled = ([a, b, c]: Matrix["axes"], row: number) => [a * row, b * row, c * row] as const;

const isTruth = (value: unknown) => typeof value === "boolean" || value === 0 || value === 1;

function packBoolean(where: string, given: BooleanMask, sizes: Sizes): Dense {
  const what = `${where}: boolean`;
  const { data, shape } = check<BooleanMask>(what, given, MATRIX);
  if (!(data instanceof Uint8Array || Array.isArray(data))) {
    throw invalid(`${what}.data is ${show(data)}; give a Uint8Array or an array of booleans`);
  }
  const at = Array.isArray(data) ? Array.from(data).findIndex((one) => !isTruth(one)) : -1;
  if (at >= 0) {
    throw invalid(`${what}.data[${at}] is ${show(data[at])}; give true or false`);
  }
  const { rows, columns, axes } = matrix(what, shape, data.length, sizes);
  const row = Math.ceil(sizes.keyRows / 32);
  const words = new Uint32Array(rows * row);
  for (let r = 0; r < rows; r++) {
    for (let key = 0; key < sizes.keyRows; key++) {
      // An axis of one key stands for all.
      if (!data[r * columns + (columns === 1 ? 0 : key)]) continue;
      const at = r * row + (key >>> 5);
      words[at] = (words[at] as number) | (1 << (key & 31));
    }
  }
  return { dense: { kind: "bits", strides: scaled(axes, row), keysFrom: 0 }, words };
}

function packAdditive(where: string, given: AdditiveMask, sizes: Sizes): Dense {
  const what = `${where}: additive`;
  const { data, shape } = check<AdditiveMask>(what, given, MATRIX);
  if (!(data instanceof Float32Array || Array.isArray(data))) {
    throw invalid(`${what}.data is ${show(data)}; give a Float32Array`);
  }
  const at = data.findIndex((value: unknown) => !(typeof value === "number" && value <= MOST_BIAS));
  if (at >= 0) {
    throw invalid(
      `${what}.data[${at}] is ${show(data[at])}; give a number up to 1e6, or -Infinity to hide a key`,
    );
  }
  const { rows, columns, axes } = matrix(what, shape, data.length, sizes);
  const row = sizes.keyRows;
  const values = new Float32Array(rows * row);
  for (let r = 0; r < rows; r++) {
    for (let key = 0; key < row; key++) {
      const value = data[r * columns + (columns === 1 ? 0 : key)] as number;
      values[r * row + key] = value < -MOST_BIAS ? HIDDEN : value;
    }
  }
  const words = new Uint32Array(values.buffer);
  return { dense: { kind: "additive", strides: scaled(axes, row), keysFrom: 0 }, words };
}
