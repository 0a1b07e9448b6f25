/**
 * Operations on tensors of one's own: fused attention with its gradients, and softmax. Importing this
 * module touches neither the GPU nor the network.
 *
 * @example
 * ```ts
 * import { Runtime } from "tinyloom";
 * import { attention } from "tinyloom/ops";
 *
 * const runtime = await Runtime.create();
 * const shape = [1, 8, 128, 64]; // [batch, heads, tokens, head_dim]
 * const [query, key, value] = [q, k, v].map((numbers) => runtime.tensor(numbers, shape));
 * const { output } = await attention.forward(query, key, value, { causal: true });
 * console.log(await output.data());
 * ```
 *
 * @module tinyloom/ops
 */

export {
  type AttentionGradients,
  type AttentionOptions,
  type AttentionResult,
  attention,
  type BackwardOptions,
  type DecodeOptions,
  type ForwardOptions,
} from "./attention.js";
export { type ErrorCode, TinyloomError } from "./error.js";
export type { ElementType } from "./formats.js";
export type {
  AdditiveMask,
  BooleanMask,
  MaskOptions,
  TreeMask,
  WholeNumbers,
} from "./masks.js";
export { softmax } from "./softmax.js";
export { Tensor, type TensorData, type TensorOptions } from "./tensor.js";
