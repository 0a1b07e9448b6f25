// The generated declarations of the wasm module satisfy the hand-written boundary.

import type { RawExports } from "../../../pkg/dist/raw-types.js";
import type * as generated from "../../../pkg/dist/tinyloom.js";

/**
 * Constructors as methods, whose parameters are compared in both directions: generated classes have
 * wasm-bindgen's own `free` and `dispose` besides, which the boundary leaves alone.
 */
type AsMethods<M> = {
  [K in keyof M]: M[K] extends new (...args: infer A) => infer R ? { make(...args: A): R } : M[K];
};

export const check = (
  module: AsMethods<ReturnType<typeof generated.instance>>,
): AsMethods<RawExports> => module;
