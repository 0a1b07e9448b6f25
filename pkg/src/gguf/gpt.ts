/** What files of families with layer norms have of their own. */

import type { ModelConfig } from "../model-config.js";
import type { Rules } from "./family.js";
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
};
