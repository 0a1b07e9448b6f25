/** Fused attention on tensors: softmax(scale · query · keyᵀ under a mask) · value. */

import { MASK, type MaskOptions, packMask, type RawMask, type Sizes } from "./masks.js";
import { expectLike, expectTensor, Operands, type RawView, type Wanted } from "./operands.js";
import { check, invalid, number, object, type Rules } from "./options.js";
import type { ElementType, Tensor } from "./tensor.js";

/** Options of every pass. */
export interface AttentionOptions extends MaskOptions {
  /** Factor on the scores query · key; default 1 / √head_dim. From 1e-6 to 1e6. */
  scale?: number;
  /** Squashes the scaled scores into ± this: `softCap · tanh(score / softCap)`. From 1e-3 to 1e6. */
  softCap?: number;
}

/** What attention gives. */
export interface AttentionResult {
  /** `[batch, heads, queries, head_dim]`, of the query's element; zeros where a query sees nothing. */
  readonly output: Tensor;
  /** `[batch, heads, queries]` in f32: natural logarithm of Σ exp(score); −1e30 where a query sees nothing. */
  readonly logsumexp: Tensor;
}

/** Options of `attention.forward`. */
export interface ForwardOptions extends AttentionOptions {
  /** Tensors to write into instead of new ones. Each needs a buffer that no other tensor of the call has. */
  into?: { readonly output?: Tensor; readonly logsumexp?: Tensor };
}

/** Options of `attention.decode`. */
export interface DecodeOptions
  extends Pick<ForwardOptions, "window" | "keyLengths" | "scale" | "softCap" | "into"> {}

/** Options of `attention.backward`: those of its forward pass, and what that gave. */
export interface BackwardOptions extends AttentionOptions, AttentionResult {
  /** Tensors to write into instead of new ones. Each needs a buffer that no other tensor of the call has. */
  into?: { readonly dQuery?: Tensor; readonly dKey?: Tensor; readonly dValue?: Tensor };
}

/** Gradients, each of the shape and element of its tensor. */
export interface AttentionGradients {
  readonly dQuery: Tensor;
  readonly dKey: Tensor;
  readonly dValue: Tensor;
}

// What it is is looked at beside the shapes.
const anything = () => undefined;
const SCORES = { scale: number(1e-6, 1e6), softCap: number(1e-3, 1e6), into: object };
const FORWARD: Rules<ForwardOptions> = { ...MASK, ...SCORES };
const BACKWARD: Rules<BackwardOptions> = { ...FORWARD, output: anything, logsumexp: anything };
const DECODE: Rules<DecodeOptions> = {
  window: MASK.window,
  keyLengths: MASK.keyLengths,
  ...SCORES,
};
const RESULT: Rules<AttentionResult> = { output: anything, logsumexp: anything };
const GRADIENTS: Rules<AttentionGradients> = { dQuery: anything, dKey: anything, dValue: anything };

interface CallSizes extends Sizes {
  readonly kvHeads: number;
  readonly headDim: number;
  readonly element: ElementType;
}

/** A call as it crosses to the module: sizes in elements. The backward pass adds its gradients' views. */
interface RawCall extends CallSizes {
  readonly query: RawView;
  readonly key: RawView;
  readonly value: RawView;
  readonly output: RawView;
  /** The buffer of f32 [batch, heads, queryRows]. */
  readonly logsumexp: number;
  readonly softCap: number | null;
  readonly scale: number | null;
  readonly mask: RawMask;
}

/**
 * Attention, with the logarithm of each query's sum for the backward pass or to merge parts.
 *
 * @param query - `[batch, heads, queries, head_dim]`. In every tensor head_dim is a multiple of 4 and at
 * most 256, and the last axis has no gaps; the offset and the other strides are multiples of 4 elements.
 * @param key - `[batch, key heads, keys, head_dim]`. `heads` is a multiple of `key heads`;
 * `heads / key heads` neighbouring query heads share one.
 * @param value - has the key's shape.
 * @returns new tensors, or those of `into`, to free when done with.
 * @throws {@link TinyloomError} `invalid-options`, `freed`, `limit-exceeded`, `out-of-memory`.
 *
 * @example
 * ```ts
 * const { output } = await attention.forward(query, key, value, { causal: true });
 * ```
 */
async function forward(
  query: Tensor,
  key: Tensor,
  value: Tensor,
  options: ForwardOptions = {},
): Promise<AttentionResult> {
  const where = "attention.forward";
  return attend(where, [query, key, value], check(where, options, FORWARD), "attentionForward");
}

/**
 * Attention of one query for each batch item, as in decoding: the last token's, which sees every key in
 * use, or the last `window` of them. Keys are shared out to many workgroups.
 *
 * @param query - `[batch, heads, 1, head_dim]`.
 * @param key - `[batch, key heads, keys, head_dim]`: of a cache of fixed capacity the slice in use, or
 * all of it with `keyLengths`.
 * @param value - of the key's shape.
 * @throws {@link TinyloomError} `invalid-options`, `freed`, `limit-exceeded`, `out-of-memory`.
 */
async function decode(
  query: Tensor,
  key: Tensor,
  value: Tensor,
  options: DecodeOptions = {},
): Promise<AttentionResult> {
  const where = "attention.decode";
  const chosen = check(where, options, DECODE);
  expectTensor(where, "query", query);
  if (query.shape[2] !== 1) {
    throw invalid(
      `${where}: query has the shape [${query.shape}]; give one query an item, ` +
        "[batch, heads, 1, head_dim], or use attention.forward",
    );
  }
  return attend(where, [query, key, value], chosen, "attentionDecode");
}

/** The two passes that give an output. */
async function attend(
  where: string,
  [query, key, value]: readonly [Tensor, Tensor, Tensor],
  chosen: ForwardOptions,
  pass: "attentionForward" | "attentionDecode",
): Promise<AttentionResult> {
  const sizes = sizesOf(where, query, key, value);
  const { mask, data } = packMask(where, chosen, sizes);
  const into = check<Partial<AttentionResult>>(`${where}: into`, chosen.into, RESULT);
  const operands = new Operands(where, { query, key, value });
  return operands.guard(async () => {
    const output = operands.output("output", into.output, query);
    const logsumexp = operands.output("logsumexp", into.logsumexp, sumsOf(query));
    const call = rawCall(operands, sizes, chosen, mask);
    await operands.run((raw) => raw[pass](JSON.stringify(call), data), data.length);
    return { output, logsumexp };
  });
}

/**
 * Gradients of `attention.forward` from those of its output. Masks have none. Probabilities are made
 * again from `logsumexp`; nothing grows with queries × keys.
 *
 * @param dOutput - gradient of the output, of its shape.
 * @param query - as in the forward pass; `key` and `value` too.
 * @param options - the forward pass's own, with its `output` and `logsumexp`.
 * @throws {@link TinyloomError} `invalid-options`, `freed`, `limit-exceeded`, `out-of-memory`.
 *
 * @example
 * ```ts
 * const options = { causal: true };
 * const saved = await attention.forward(query, key, value, options);
 * const { dQuery } = await attention.backward(dOutput, query, key, value, { ...options, ...saved });
 * ```
 */
async function backward(
  dOutput: Tensor,
  query: Tensor,
  key: Tensor,
  value: Tensor,
  options: BackwardOptions,
): Promise<AttentionGradients> {
  const where = "attention.backward";
  const chosen = check<BackwardOptions>(where, options, BACKWARD);
  const sizes = sizesOf(where, query, key, value);
  const { output, logsumexp } = chosen;
  expectLike(where, "output", output, query);
  expectLike(where, "logsumexp", logsumexp, sumsOf(query));
  expectLike(where, "dOutput", dOutput, query);
  const { mask, data } = packMask(where, chosen, sizes);
  const into = check<Partial<AttentionGradients>>(`${where}: into`, chosen.into, GRADIENTS);
  const operands = new Operands(where, { query, key, value, output, logsumexp, dOutput });
  return operands.guard(async () => {
    const dQuery = operands.output("dQuery", into.dQuery, query);
    const dKey = operands.output("dKey", into.dKey, key);
    const dValue = operands.output("dValue", into.dValue, value);
    const gradients = operands.views("dOutput", "dQuery", "dKey", "dValue");
    const call = JSON.stringify({ ...rawCall(operands, sizes, chosen, mask), gradients });
    await operands.run((raw) => raw.attentionBackward(call, data), data.length);
    return { dQuery, dKey, dValue };
  });
}

/** Fused attention on tensors. */
export const attention = Object.freeze({ forward, backward, decode });

/** The sizes of a call, once its inputs fit each other. */
function sizesOf(where: string, query: Tensor, key: Tensor, value: Tensor): CallSizes {
  const [batch, heads, queryRows, headDim] = fourAxes(where, "query", query);
  const [keyBatch, kvHeads, keyRows, keyDim] = fourAxes(where, "key", key);
  fourAxes(where, "value", value);
  const refuse = (message: string) => invalid(`${where}: ${message}`);
  if (headDim % 4 !== 0 || headDim > 256) {
    throw refuse(`head_dim is ${headDim}; give a multiple of 4 up to 256`);
  }
  if (keyBatch !== batch || keyDim !== headDim) {
    throw refuse(
      `key has the shape [${key.shape}] and query [${query.shape}]; give the same batch and head_dim`,
    );
  }
  if (heads % kvHeads !== 0) {
    throw refuse(`query has ${heads} heads and key ${kvHeads}; give a multiple of the key's`);
  }
  const { element } = query;
  expectLike(where, "key", key, { shape: key.shape, element });
  expectLike(where, "value", value, { shape: key.shape, element });
  return { batch, heads, kvHeads, queryRows, keyRows, headDim, element };
}

function fourAxes(where: string, name: string, tensor: unknown) {
  expectTensor(where, name, tensor);
  const { shape } = tensor;
  if (shape.length === 4) return shape as readonly [number, number, number, number];
  throw invalid(
    `${where}: ${name} has the shape [${shape}]; give [batch, heads, tokens, head_dim]`,
  );
}

/** What holds a number for each query. */
function sumsOf(query: Tensor): Wanted {
  return { shape: query.shape.slice(0, 3), element: "f32" };
}

function rawCall(
  operands: Operands,
  sizes: CallSizes,
  { scale = null, softCap = null }: { scale?: number | null; softCap?: number | null },
  mask: RawMask,
): RawCall {
  const views = operands.views("query", "key", "value", "output");
  return { ...views, ...sizes, logsumexp: operands.id("logsumexp"), softCap, scale, mask };
}
