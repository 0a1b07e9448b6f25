/** How Gemma 1, 2 and 3 lie in a GGUF file. */

import type { ModelConfig } from "../model-config.js";
import type { RopeParameters } from "../rope-parameters.js";
import { type Change, DECODER, expectField, type Family, GELU, refusedField } from "./family.js";
import type { Metadata } from "./format.js";
import { refuseScaling, writeRope } from "./rope.js";

/** llama.cpp's norms multiply by the weight, Gemma's by 1 + the weight. */
const PLUS_ONE: Change = {
  together: () => 1,
  change: (values) => values.map((value) => value + 1),
};

/** A family whose norms are these modules. */
function gemma(
  architecture: string,
  norms: { readonly [module: string]: string },
  write: (metadata: Metadata, config: ModelConfig) => void,
): Family {
  return {
    architecture,
    modules: { ...DECODER, ...norms },
    changes: Object.fromEntries(Object.keys(norms).map((module) => [module, PLUS_ONE])),
    write(metadata, config) {
      // llama.cpp takes the logits of the embedding.
      expectField(config, "tie_word_embeddings", [true]);
      write(metadata, config);
    },
  };
}

const { norm, input_layernorm, post_attention_layernorm } = DECODER;

export const GEMMA = gemma(
  "gemma",
  { norm, input_layernorm, post_attention_layernorm },
  (metadata, config) => {
    expectField(config, "hidden_act", GELU);
    expectField(config, "attn_logit_softcapping", [undefined]);
    refuseScaling("gemma", config);
    writeRope(metadata, "gemma", config);
  },
);

/** Norms before and behind each block. */
const AROUND = {
  norm,
  input_layernorm,
  post_attention_layernorm: "post_attention_norm",
  pre_feedforward_layernorm: "ffn_norm",
  post_feedforward_layernorm: "post_ffw_norm",
};

export const GEMMA_2 = gemma("gemma2", AROUND, (metadata, config) => {
  for (const field of ["attn_logit_softcapping", "final_logit_softcapping"]) {
    // llama.cpp has caps of its own where there is no key.
    const cap = config[field];
    if (typeof cap !== "number") throw refusedField(config, field, "as a number");
    metadata.f32(`gemma2.${field}`, cap);
  }
  writeWindow(metadata, "gemma2", config, { period: 2, scaledByHidden: 46 });
  refuseScaling("gemma2", config);
  writeRope(metadata, "gemma2", config);
});

/** Angles of layers with a window that llama.cpp takes where the file has no others. */
const LOCAL_BASE = 10_000;

export const GEMMA_3 = gemma(
  "gemma3",
  { ...AROUND, "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm" },
  (metadata, config) => {
    for (const field of ["attn_logit_softcapping", "final_logit_softcapping"]) {
      expectField(config, field, [undefined]);
    }
    writeWindow(metadata, "gemma3", config, { period: 6, scaledByHidden: 62 });
    const { full_attention: full } = config.rope_parameters as Required<RopeParameters>;
    // llama.cpp would scale the layers with a window too, by others.
    expectField({ rope_type: full.rope_type }, "rope_type", ["default", "linear"]);
    writeRope(metadata, "gemma3", { ...config, rope_parameters: full });
    const base = config.rope_local_base_freq as number;
    if (base !== LOCAL_BASE) metadata.f32("gemma3.rope.freq_base_swa", base);
  },
);

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
  expectField(config, "hidden_activation", GELU);
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
