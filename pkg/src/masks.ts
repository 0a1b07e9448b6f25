/** Masks of attention: as users give them, and as they cross to the module, which judges their values. */

import { FIELD, type Fields } from "./fields.js";
import {
  anything,
  check,
  flag,
  inspect,
  invalid,
  numeric,
  object,
  type Rules,
  show,
} from "./options.js";

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

const isList = (value: unknown) => Array.isArray(value) || value instanceof Uint32Array;

/** Rules of {@link MaskOptions}: the types that values have. */
export const MASK: Rules<MaskOptions> = {
  causal: flag,
  window: numeric,
  documents: (value) =>
    isList(value) ? undefined : "a Uint32Array, or an array of one for each batch item",
  keyLengths: (value) =>
    isList(value) ? undefined : "a Uint32Array or a list, a number for each batch item",
  queryOffset: (value) =>
    Array.isArray(value) ? undefined : numeric(value) && "a number, or a list of them",
  tree: object,
  boolean: object,
  additive: object,
};

// What they hold is looked at one by one.
const TREE: Rules<TreeMask> = { words: anything };
const MATRIX: Rules<BooleanMask | AdditiveMask> = { data: anything, shape: anything };

/**
 * Adds the options of masks to a call. Lists are copied; the data of a dense mask is given back as it is.
 *
 * @param where - the call, for the message.
 */
export function addMask(
  where: string,
  options: MaskOptions,
  fields: Fields,
): Uint8Array | undefined {
  return inspect(where, () => {
    const { causal, window, documents, keyLengths, queryOffset } = options;
    if (causal) fields.add(FIELD.causal, []);
    if (window !== undefined) fields.add(FIELD.window, [window]);
    if (typeof queryOffset === "number") fields.add(FIELD.queryOffset, [queryOffset]);
    else if (queryOffset) {
      fields.add(FIELD.queryOffsets, numbers(`${where}: queryOffset`, queryOffset));
    }
    if (documents) addDocuments(`${where}: documents`, documents, fields);
    if (keyLengths) fields.add(FIELD.keyLengths, numbers(`${where}: keyLengths`, keyLengths));
    return addDense(where, options, fields);
  });
}

/** A list of numbers, whatever they are. */
function numbers(what: string, given: unknown): WholeNumbers {
  if (given instanceof Uint32Array) return given;
  if (!Array.isArray(given)) throw invalid(`${what} is ${show(given)}; give a Uint32Array`);
  return numerics(what, given, "a whole number");
}

/** An array, once it holds numbers alone, and no holes. */
function numerics(what: string, given: readonly unknown[], allowed: string): readonly number[] {
  const list = Array.from(given);
  const at = list.findIndex((value) => typeof value !== "number");
  if (at < 0) return list as number[];
  throw invalid(`${what}[${at}] is ${show(list[at])}; give ${allowed}`);
}

function addDocuments(
  what: string,
  given: WholeNumbers | readonly WholeNumbers[],
  fields: Fields,
): void {
  const nested = Array.isArray(given) && given.some((one) => typeof one !== "number");
  if (!nested) {
    fields.add(FIELD.documents, numbers(what, given));
    return;
  }
  for (const [item, list] of given.entries()) {
    fields.add(FIELD.documentsOfItem, numbers(`${what}[${item}]`, list));
  }
}

const bytesOf = ({ buffer, byteOffset, byteLength }: ArrayBufferView) =>
  new Uint8Array(buffer, byteOffset, byteLength);

function addDense(where: string, options: MaskOptions, fields: Fields): Uint8Array | undefined {
  const { tree, boolean, additive } = options;
  const given = Object.entries({ tree, boolean, additive }).filter(([, one]) => one !== undefined);
  if (given.length > 1) {
    const names = given.map(([name]) => name).join(" and ");
    throw invalid(`${where}: ${names} are given; give one of them, with both put together in it`);
  }
  if (tree) return bytesOf(addTree(`${where}: tree`, tree, fields));
  if (boolean) return bytesOf(addBoolean(`${where}: boolean`, boolean, fields));
  return additive && bytesOf(addAdditive(`${where}: additive`, additive, fields));
}

function addTree(what: string, tree: TreeMask, fields: Fields): Uint32Array {
  const { words } = check(what, tree, TREE);
  if (words instanceof Uint32Array) {
    fields.add(FIELD.tree, []);
    return words;
  }
  if (!Array.isArray(words)) {
    throw invalid(
      `${what}.words is ${show(words)}; give a Uint32Array, or an array of one for each batch item`,
    );
  }
  const lists: readonly unknown[] = Array.from(words);
  for (const [item, list] of lists.entries()) {
    if (list instanceof Uint32Array) continue;
    throw invalid(`${what}.words[${item}] is ${show(list)}; give a Uint32Array`);
  }
  const lengths = (lists as Uint32Array[]).map((list) => list.length);
  fields.add(FIELD.treePerItem, lengths);
  const all = new Uint32Array(lengths.reduce((sum, length) => sum + length, 0));
  let done = 0;
  for (const list of lists as Uint32Array[]) {
    all.set(list, done);
    done += list.length;
  }
  return all;
}

const isTruth = (value: unknown) => typeof value === "boolean" || value === 0 || value === 1;

function addBoolean(what: string, given: BooleanMask, fields: Fields): Uint8Array {
  const { data, shape } = check<BooleanMask>(what, given, MATRIX);
  if (!(data instanceof Uint8Array || Array.isArray(data))) {
    throw invalid(`${what}.data is ${show(data)}; give a Uint8Array or an array of booleans`);
  }
  const at = Array.isArray(data) ? Array.from(data).findIndex((one) => !isTruth(one)) : -1;
  if (at >= 0) throw invalid(`${what}.data[${at}] is ${show(data[at])}; give true or false`);
  fields.add(FIELD.boolean, shapeOf(what, shape));
  return data instanceof Uint8Array ? data : Uint8Array.from(data, Number);
}

function addAdditive(what: string, given: AdditiveMask, fields: Fields): Float32Array {
  const { data, shape } = check<AdditiveMask>(what, given, MATRIX);
  const flat = data instanceof Float32Array;
  if (!(flat || Array.isArray(data))) {
    throw invalid(`${what}.data is ${show(data)}; give a Float32Array`);
  }
  const allowed = "a number up to 1e6, or -Infinity to hide a key";
  const values = flat ? data : Float32Array.from(numerics(`${what}.data`, data, allowed));
  fields.add(FIELD.additive, shapeOf(what, shape));
  return values;
}

function shapeOf(what: string, shape: unknown): readonly number[] {
  if (Array.isArray(shape)) return numerics(`${what}.shape`, shape, "a whole number");
  throw invalid(
    `${what}.shape is ${show(shape)}; give one that broadcasts to [batch, heads, queries, keys]`,
  );
}
