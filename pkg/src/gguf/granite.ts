/** What files of Granite have of their own. */

/** Keys of factors, and their fields. */
export const GRANITE_FACTORS = {
  embedding_scale: "embedding_multiplier",
  residual_scale: "residual_multiplier",
  logit_scale: "logits_scaling",
  "attention.scale": "attention_multiplier",
} as const;
