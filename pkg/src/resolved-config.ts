/** A model's config in full. */

import type { ModelConfig } from "./model-config.js";

/**
 * A model's config with every default filled in, as {@link Model.config} has it. The fields named here are those that
 * each family has. GPT-2 and GPT-Neo spell some of them otherwise, such as `n_embd`: there the names below are to be
 * read too, as transformers' classes give them. They are not enumerable, so `JSON.stringify` and a spread give the
 * family's own names alone, as `config.json` has them.
 */
export interface ResolvedConfig extends Readonly<ModelConfig> {
  readonly model_type: NonNullable<ModelConfig["model_type"]>;
  readonly vocab_size: number;
  readonly hidden_size: number;
  readonly num_hidden_layers: number;
  readonly num_attention_heads: number;
  readonly max_position_embeddings: number;
  readonly initializer_range: number;
  readonly tie_word_embeddings: boolean;
}

type Sizes = { readonly [own: string]: keyof ResolvedConfig };

const SPELLED: { readonly [type: string]: Sizes } = {
  gpt2: {
    n_embd: "hidden_size",
    n_layer: "num_hidden_layers",
    n_head: "num_attention_heads",
    n_positions: "max_position_embeddings",
  },
  gpt_neo: { num_layers: "num_hidden_layers", num_heads: "num_attention_heads" },
};

/** The fields that the module gives, with the usual names of sizes beside a family's own. */
export function resolvedConfig(fields: Readonly<ModelConfig>): ResolvedConfig {
  for (const [own, name] of Object.entries(SPELLED[fields.model_type as string] ?? {})) {
    Object.defineProperty(fields, name, { value: fields[own], enumerable: false });
  }
  return Object.freeze(fields) as ResolvedConfig;
}
