import type { ModelConfig } from "tinyloom";

/** A model's sizes, however its family spells them. */
export function shapeOf(config: ModelConfig) {
  return {
    layers: config.num_hidden_layers ?? config.n_layer ?? config.num_layers,
    heads: config.num_attention_heads ?? config.n_head ?? config.num_heads,
    width: config.hidden_size ?? config.n_embd,
    positions: config.max_position_embeddings ?? config.n_positions,
  };
}
