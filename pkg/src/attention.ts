/** Fused attention on tensors: softmax(scale · query · keyᵀ under a mask) · value. */

import { FIELD, OPERATION } from "./fields.js";
import { addMask, MASK, type MaskOptions } from "./masks.js";
import { Operands } from "./operands.js";
import { anything, check, numeric, object, type Rules } from "./options.js";
import type { Tensor } from "./tensor.js";

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

// Whether it is a tensor is looked at as it is added to the call.
const SCORES = { scale: numeric, softCap: numeric, into: object };
const FORWARD: Rules<ForwardOptions> = { ...MASK, ...SCORES };
const BACKWARD: Rules<BackwardOptions> = { ...FORWARD, output: anything, logsumexp: anything };
const DECODE: Rules<DecodeOptions> = {
  window: MASK.window,
  keyLengths: MASK.keyLengths,
  ...SCORES,
};
const RESULT: Rules<AttentionResult> = { output: anything, logsumexp: anything };
const GRADIENTS: Rules<AttentionGradients> = { dQuery: anything, dKey: anything, dValue: anything };

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
  const chosen = check<ForwardOptions>(where, options, FORWARD);
  return attend(where, OPERATION.forward, [query, key, value], chosen);
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
  const chosen = check<DecodeOptions>(where, options, DECODE);
  return attend(where, OPERATION.decode, [query, key, value], chosen);
}

/** The two passes that give an output. */
async function attend(
  where: string,
  operation: number,
  [query, key, value]: readonly [Tensor, Tensor, Tensor],
  chosen: ForwardOptions,
): Promise<AttentionResult> {
  const operands = new Operands(where, { query, key, value });
  operands.into(chosen.into, RESULT);
  const dense = addOptions(where, chosen, operands);
  const logsumexp = { shape: query.shape.slice(0, 3), element: "f32" } as const;
  return operands.run(operation, { output: query, logsumexp }, dense);
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
  const { output, logsumexp } = chosen;
  const operands = new Operands(where, { query, key, value, output, logsumexp, dOutput });
  operands.into(chosen.into, GRADIENTS);
  const dense = addOptions(where, chosen, operands);
  return operands.run(OPERATION.backward, { dQuery: query, dKey: key, dValue: value }, dense);
}

/** Fused attention on tensors. */
export const attention = Object.freeze({ forward, backward, decode });

/** Adds the options of every pass, and gives the data of a dense mask. */
function addOptions(
  where: string,
  options: AttentionOptions,
  { fields }: Operands,
): Uint8Array | undefined {
  const { scale, softCap } = options;
  if (scale !== undefined) fields.add(FIELD.scale, [scale]);
  if (softCap !== undefined) fields.add(FIELD.softCap, [softCap]);
  return addMask(where, options, fields);
}
