/** The formats in which matrices, keys and values, and tensors are held. */

import { oneOf } from "./options.js";

/** The format in which matrices are read. */
export type WeightFormat = "f32" | "f16" | "int8" | "int4";

/** The format in which keys and values are kept. */
export type KvCache = "f32" | "f16" | "int8";

export const kvCache = oneOf("f32", "f16", "int8");

export const weights = oneOf("f32", "f16", "int8", "int4");

/** How a tensor's elements are stored. Sums are made in f32 either way; f16 needs no feature. */
export type ElementType = "f32" | "f16";
