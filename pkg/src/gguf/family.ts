/** What is said of a family of models that lies in a GGUF file. */

import type { ModelConfig } from "../model-config.js";
import { invalid, show } from "../options.js";
import type { Metadata } from "./format.js";

/** Another order of a tensor's elements, or other elements. */
export interface Change {
  /** How many rows it needs at a time. A tensor's rows are a multiple of that. Default: all rows. */
  together?(config: ModelConfig): number;
  /** The shape in the file; default that of the checkpoint. */
  shape?(stored: readonly number[]): readonly number[];
  /** Changes so many rows at a time: `columns` elements each. */
  change(values: Float32Array, columns: number, config: ModelConfig): Float32Array;
}

export interface Family {
  /** llama.cpp's name, which is the prefix of the keys. */
  readonly architecture: string;
  /** llama.cpp's names of modules. Those with a layer are in `blk.N.`. */
  readonly modules: { readonly [module: string]: string };
  /** What is changed of a module's parameters. */
  readonly changes?: { readonly [module: string]: Change };
  /** The key of the norms' epsilon; default that of norms without a mean. */
  readonly epsilon?: string;
  /** The config with Llama's names of its fields, where the family has others. */
  renamed?(config: ModelConfig): ModelConfig;
  /** Writes the keys that are the family's own, and refuses what llama.cpp computes otherwise. */
  write(metadata: Metadata, config: ModelConfig): void;
  /** Positions that llama.cpp computes as the model does; default `max_position_embeddings`. */
  positions?(config: ModelConfig): number;
  /** Tensors that no checkpoint has. */
  extra?(config: ModelConfig): { readonly [name: string]: Float32Array };
}

/** Names of the decoder that Llama began. */
export const DECODER = {
  embed_tokens: "token_embd",
  norm: "output_norm",
  lm_head: "output",
  input_layernorm: "attn_norm",
  "self_attn.q_proj": "attn_q",
  "self_attn.k_proj": "attn_k",
  "self_attn.v_proj": "attn_v",
  "self_attn.o_proj": "attn_output",
  post_attention_layernorm: "ffn_norm",
  "mlp.gate_proj": "ffn_gate",
  "mlp.up_proj": "ffn_up",
  "mlp.down_proj": "ffn_down",
};

/** What llama.cpp computes of the GELUs: the tanh form, also where transformers computes the error function. */
export const GELU = ["gelu", "gelu_new", "gelu_pytorch_tanh"];

/**
 * Refuses a field's value that llama.cpp does not compute.
 *
 * @param allowed - the values that it does compute. `undefined` allows null too.
 */
export function expectField(config: ModelConfig, field: string, allowed: readonly unknown[]): void {
  if (allowed.includes(config[field] ?? undefined)) return;
  const values = allowed.map((one) => (one === undefined ? "null" : show(one)));
  throw refusedField(config, field, values.join(" or "));
}

/** @param allowed - what of it llama.cpp computes, in words. */
export function refusedField(config: ModelConfig, field: string, allowed: string): Error {
  return invalid(
    `save: llama.cpp computes this family only with ${field} ${allowed}, and it is ${show(config[field])}; ` +
      'save with format: "safetensors"',
  );
}
