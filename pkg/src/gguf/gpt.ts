/** What files of GPT-2 and GPT-NeoX have of their own. */

import type { ModelConfig } from "../model-config.js";
import type { Rules } from "./family.js";
import { refuseScaling, writeRope } from "./rope.js";

const EPSILON = "layer_norm_epsilon";

/** As many heads of keys and values as of queries, all of one size. */
function withHeads(config: ModelConfig): ModelConfig {
  const heads = config.num_attention_heads as number;
  return {
    ...config,
    num_key_value_heads: heads,
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
