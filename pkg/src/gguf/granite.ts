/** What files of Granite have of their own. */

import type { Fields } from "./family.js";
import type { Keys } from "./metadata.js";
import { readDecoder } from "./read-decoder.js";

/** Keys of factors, and their fields. */
export const GRANITE_FACTORS = {
  embedding_scale: "embedding_multiplier",
  residual_scale: "residual_multiplier",
  logit_scale: "logits_scaling",
  "attention.scale": "attention_multiplier",
} as const;

/** The factors, beside what a decoder has. */
export function readGranite(keys: Keys, prefix: string, config: Fields): Fields {
  const factors = Object.entries(GRANITE_FACTORS).map(([key, field]) => [
    field,
    keys.number(`${prefix}${key}`) ?? (key === "attention.scale" ? undefined : 1),
  ]);
  return { ...readDecoder(keys, prefix, config), ...Object.fromEntries(factors) };
}
