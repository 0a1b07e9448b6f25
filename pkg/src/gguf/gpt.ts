/** How GPT-2 and GPT-NeoX lie in a GGUF file. */

import type { ModelConfig } from "../model-config.js";
import { transpose } from "../transpose.js";
import { type Change, expectField, type Family, GELU } from "./family.js";
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

/** Rows by outputs: GPT-2's checkpoints have them by inputs. Biases are one column, which stays as it is. */
const TURNED: Change = {
  shape: (stored) => [...stored].reverse(),
  change: transpose,
};

export const GPT_2: Family = {
  architecture: "gpt2",
  epsilon: EPSILON,
  modules: {
    wte: "token_embd",
    wpe: "position_embd",
    ln_f: "output_norm",
    lm_head: "output",
    ln_1: "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    ln_2: "ffn_norm",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
  },
  changes: {
    "attn.c_attn": TURNED,
    "attn.c_proj": TURNED,
    "mlp.c_fc": TURNED,
    "mlp.c_proj": TURNED,
  },
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
  write(_, config) {
    expectField(config, "activation_function", GELU);
    expectField(config, "attn_logit_softcapping", [undefined]);
  },
};

/** All queries, then all keys, then all values: GPT-NeoX's checkpoints have them head by head. */
const HEADS: Change = {
  change(values, columns, { head_dim }) {
    const length = (head_dim as number) * columns;
    const heads = values.length / length / 3;
    const joined = new Float32Array(values.length);
    for (let head = 0; head < heads; head++) {
      for (let part = 0; part < 3; part++) {
        const from = (3 * head + part) * length;
        joined.set(values.subarray(from, from + length), (part * heads + head) * length);
      }
    }
    return joined;
  },
};

export const GPT_NEOX: Family = {
  architecture: "gptneox",
  epsilon: EPSILON,
  modules: {
    embed_in: "token_embd",
    final_layer_norm: "output_norm",
    embed_out: "output",
    input_layernorm: "attn_norm",
    "attention.query_key_value": "attn_qkv",
    "attention.dense": "attn_output",
    post_attention_layernorm: "ffn_norm",
    "mlp.dense_h_to_4h": "ffn_up",
    "mlp.dense_4h_to_h": "ffn_down",
  },
  changes: { "attention.query_key_value": HEADS },
  renamed: (config) =>
    withHeads({
      ...config,
      rms_norm_eps: config.layer_norm_eps as number,
      rope_theta: config.rotary_emb_base as number,
    }),
  write(metadata, config) {
    expectField(config, "hidden_act", GELU);
    expectField(config, "attn_logit_softcapping", [undefined]);
    expectField(config, "attention_bias", [true]);
    expectField(config, "tie_word_embeddings", [false]);
    refuseScaling("gptneox", config);
    const turned = Math.floor((config.head_dim as number) * (config.rotary_pct as number));
    writeRope(metadata, "gptneox", { ...config, head_dim: turned });
    metadata.flag("gptneox.use_parallel_residual", config.use_parallel_residual as boolean);
  },
};
