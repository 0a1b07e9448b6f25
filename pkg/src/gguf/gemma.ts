/** What files of Gemma 2 and 3 have of their own. */

import type { ModelConfig } from "../model-config.js";
import type { RopeParameters } from "../rope-parameters.js";
import { expectField, type Rules, refusedField } from "./family.js";
import type { Metadata } from "./format.js";
import { refuseScaling, writeRope } from "./rope.js";

export const GEMMA_2: Rules = {
  write(metadata, config) {
    for (const field of ["attn_logit_softcapping", "final_logit_softcapping"]) {
      // llama.cpp has caps of its own where there is no key.
      const cap = config[field];
      if (typeof cap !== "number") throw refusedField(config, field, "as a number");
      metadata.f32(`gemma2.${field}`, cap);
    }
    writeWindow(metadata, "gemma2", config, { period: 2, scaledByHidden: 46 });
    refuseScaling("gemma2", config);
    writeRope(metadata, "gemma2", config);
  },
};

/** Angles of layers with a window that llama.cpp takes where the file has no others. */
const LOCAL_BASE = 10_000;

export const GEMMA_3: Rules = {
  write(metadata, config) {
    writeWindow(metadata, "gemma3", config, { period: 6, scaledByHidden: 62 });
    const ropes = config.rope_parameters as Required<RopeParameters>;
    const { full_attention: full, sliding_attention: sliding } = ropes;
    expectField({ rope_type: sliding.rope_type }, "rope_type", ["default", "dynamic"]);
    // llama.cpp would scale the layers with a window too, by others.
    expectField({ rope_type: full.rope_type }, "rope_type", ["default", "dynamic", "linear"]);
    writeRope(metadata, "gemma3", { ...config, rope_parameters: full });
    const base = config.rope_local_base_freq as number;
    if (base !== LOCAL_BASE) metadata.f32("gemma3.rope.freq_base_swa", base);
  },
};

/** What llama.cpp knows without a key. */
interface Usual {
  /** Every so many layers have no window. */
  readonly period: number;
  /** Layers of the model whose scores are divided by √(hidden_size / heads) instead of √head_dim. */
  readonly scaledByHidden: number;
}

function writeWindow(
  metadata: Metadata,
  architecture: string,
  config: ModelConfig,
  { period, scaledByHidden }: Usual,
): void {
  const { num_hidden_layers: layers, hidden_size, num_attention_heads } = config;
  const byHidden = Math.floor((hidden_size as number) / (num_attention_heads as number));
  expectField(config, "query_pre_attn_scalar", [
    layers === scaledByHidden ? byHidden : config.head_dim,
  ]);
  metadata.u32(`${architecture}.attention.sliding_window`, config.sliding_window as number);
  const types = config.layer_types as readonly string[];
  const every = (count: number) =>
    types.every((type, at) => (type === "full_attention") === ((at + 1) % count === 0));
  if (every(period)) return;
  const other = types.map((_, at) => at + 2).find(every);
  if (other === undefined) {
    throw refusedField(config, "layer_types", "that repeat, with the last of a period in full");
  }
  metadata.u32(`${architecture}.attention.sliding_window_pattern`, other);
}
