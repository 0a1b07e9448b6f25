/** What files of families with layer norms have of their own. */

import type { ModelConfig } from "../model-config.js";
import type { Rules } from "./family.js";
import { BASE, ROPE, readPartlyRotated, readScaling, tokensOf } from "./read-decoder.js";
import { refuseScaling, writeRope } from "./rope.js";

const EPSILON = "layer_norm_epsilon";

/** Heads that share the hidden size, as many of keys and values as of queries if no field says how many. */
function withHeads(config: ModelConfig): ModelConfig {
  const heads = config.num_attention_heads as number;
  return {
    num_key_value_heads: heads,
    ...config,
    head_dim: (config.hidden_size as number) / heads,
  };
}

export const GPT_2: Rules = {
  epsilon: EPSILON,
  renamed(config) {
    const hidden = config.n_embd as number;
    return withHeads({
      ...config,
      hidden_size: hidden,
      intermediate_size: config.n_inner ?? 4 * hidden,
      num_hidden_layers: config.n_layer as number,
      num_attention_heads: config.n_head as number,
      max_position_embeddings: config.n_positions as number,
      rms_norm_eps: config.layer_norm_epsilon as number,
    });
  },
  write() {},
  read: (_, __, config) => ({
    model_type: "gpt2",
    vocab_size: config["vocab_size"],
    n_embd: config["hidden_size"],
    n_inner: config["intermediate_size"],
    n_layer: config["num_hidden_layers"],
    n_head: config["num_attention_heads"],
    n_positions: config["max_position_embeddings"],
    layer_norm_epsilon: config["rms_norm_eps"],
    tie_word_embeddings: config["tie_word_embeddings"],
    ...tokensOf(config),
  }),
  layers: "transformer.h",
};

export const GPT_NEOX: Rules = {
  epsilon: EPSILON,
  renamed: (config) =>
    withHeads({
      ...config,
      rms_norm_eps: config.layer_norm_eps as number,
      rope_theta: config.rotary_emb_base as number,
    }),
  write(metadata, config) {
    refuseScaling("gptneox", config);
    const turned = Math.floor((config.head_dim as number) * (config.rotary_pct as number));
    writeRope(metadata, "gptneox", { ...config, head_dim: turned });
    metadata.flag("gptneox.use_parallel_residual", config.use_parallel_residual as boolean);
  },
  read(keys, prefix, config) {
    const { head_dim } = config as { head_dim: number };
    const turned = keys.number(`${prefix}rope.dimension_count`) ?? head_dim;
    const rotary_emb_base = keys.number(`${prefix}${ROPE}`) ?? BASE;
    const rotary_pct = turned / head_dim;
    return {
      model_type: "gpt_neox",
      vocab_size: config["vocab_size"],
      hidden_size: config["hidden_size"],
      intermediate_size: config["intermediate_size"],
      num_hidden_layers: config["num_hidden_layers"],
      num_attention_heads: config["num_attention_heads"],
      max_position_embeddings: config["max_position_embeddings"],
      layer_norm_eps: config["rms_norm_eps"],
      tie_word_embeddings: config["tie_word_embeddings"],
      rotary_pct,
      rotary_emb_base,
      rope_parameters: {
        rope_theta: rotary_emb_base,
        partial_rotary_factor: rotary_pct,
        ...readScaling(keys, prefix, config["max_position_embeddings"]),
      },
      use_parallel_residual: keys.flag(`${prefix}use_parallel_residual`) ?? true,
      ...tokensOf(config),
    };
  },
  layers: "gpt_neox.layers",
};

export const STABLELM: Rules = {
  epsilon: EPSILON,
  renamed: (config) => withHeads({ ...config, rms_norm_eps: config.layer_norm_eps as number }),
  write(metadata, config) {
    refuseScaling("stablelm", config);
    const turned = (config.head_dim as number) * (config.partial_rotary_factor as number);
    writeRope(metadata, "stablelm", { ...config, head_dim: Math.floor(turned) });
    metadata.flag("stablelm.use_parallel_residual", false);
  },
  read(keys, prefix, config) {
    const { head_dim: _, rms_norm_eps, ...rest } = readPartlyRotated(keys, prefix, config);
    const parallel = keys.flag(`${prefix}use_parallel_residual`) ?? false;
    // A config without the field is the same.
    const blocks = parallel && { use_parallel_residual: true };
    return { ...rest, layer_norm_eps: rms_norm_eps, ...blocks };
  },
  biases: (has) => ({ use_qkv_bias: has("blk.0.attn_q.bias") }),
};
