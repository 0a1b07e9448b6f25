// The small models that are trained and saved for llama.cpp: each family, tokenizer and scaling of RoPE once.

/** What the models learn by heart, and what they continue. ASCII: llama.cpp's server cannot give parts of characters. */
export const TEXT =
  "First the weaver lifts every thread. Then she throws the shuttle 12 times, and it's cloth.\n";

/** What every one of them is. A row of 80 elements has no whole blocks: `down_proj` is in f16 in every file. */
const BASE = {
  hidden_size: 64,
  intermediate_size: 80,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  max_position_embeddings: 256,
  rms_norm_eps: 1e-5,
};

/** Other divisors of angles for each of so many pairs, in short texts and in long ones. */
const longrope = (pairs) => ({
  rope_type: "longrope",
  short_factor: Array.from({ length: pairs }, (_, pair) => 1 + pair / 8),
  long_factor: Array.from({ length: pairs }, (_, pair) => 1.25 + pair / 2),
});

const LONG = { ...longrope(8), attention_factor: 1.1, original_max_position_embeddings: 4 };

/**
 * Models by name: `config` without its vocabulary, the `tokenizer`, what it `learns`, if not all of the text, and
 * with a GELU how far log-probabilities may be `apart` in f32 too: llama.cpp looks it up in a table of halves. `readAs`
 * names fields that a file does not keep, and `trainedAs` what the config has while it is trained.
 */
export const MODELS = {
  llama: {
    tokenizer: "trained",
    config: {
      ...BASE,
      model_type: "llama",
      rope_theta: 500,
      rope_scaling: {
        rope_type: "llama3",
        factor: 4,
        low_freq_factor: 1,
        high_freq_factor: 4,
        original_max_position_embeddings: 64,
      },
    },
  },
  mistral: {
    tokenizer: "bytes",
    learns: TEXT.slice(0, 37), // a text of bytes is long
    readAs: ["architectures", "max_position_embeddings", "sliding_window"],
    config: { ...BASE, model_type: "mistral", sliding_window: 128 },
  },
  qwen2: {
    tokenizer: "qwen2",
    config: {
      ...BASE,
      model_type: "qwen2",
      intermediate_size: 96,
      rope_scaling: {
        rope_type: "yarn",
        factor: 4,
        original_max_position_embeddings: 64,
        attention_factor: 1.3,
        beta_fast: 16,
      },
    },
  },
  qwen3: {
    tokenizer: "llama3",
    config: {
      ...BASE,
      model_type: "qwen3",
      head_dim: 32,
      intermediate_size: 96,
      tie_word_embeddings: true,
      rope_scaling: { rope_type: "linear", factor: 2 },
    },
  },
  // llama.cpp leaves every fourth layer without RoPE.
  smollm3: {
    tokenizer: "llama3",
    config: {
      ...BASE,
      model_type: "smollm3",
      intermediate_size: 96,
      num_hidden_layers: 4,
      rope_theta: 500,
    },
  },
  "llama-biases": {
    tokenizer: "trained",
    config: { ...BASE, model_type: "llama", attention_bias: true, mlp_bias: true },
  },
  olmo2: {
    tokenizer: "llama3",
    config: { ...BASE, model_type: "olmo2", num_key_value_heads: 4, rope_theta: 500 },
  },
  granite: {
    tokenizer: "trained",
    config: {
      ...BASE,
      model_type: "granite",
      intermediate_size: 96,
      embedding_multiplier: 4,
      residual_multiplier: 0.5,
      attention_multiplier: 0.2,
      logits_scaling: 1.5,
    },
  },
  stablelm: {
    tokenizer: "trained",
    config: {
      model_type: "stablelm",
      hidden_size: 64,
      intermediate_size: 80,
      num_hidden_layers: 2,
      num_attention_heads: 4,
      num_key_value_heads: 2,
      max_position_embeddings: 256,
      use_qkv_bias: true,
      partial_rotary_factor: 0.5,
    },
  },
  phi3: {
    tokenizer: "trained",
    readAs: ["max_position_embeddings"],
    config: {
      ...BASE,
      model_type: "phi3",
      intermediate_size: 96,
      partial_rotary_factor: 0.75,
      sliding_window: 128,
    },
  },
  // llama.cpp's context of 256 is within the original one: angles are those of short texts, on both sides.
  "phi3-longrope": {
    tokenizer: "trained",
    config: {
      ...BASE,
      model_type: "phi3",
      intermediate_size: 96,
      num_key_value_heads: 4,
      partial_rotary_factor: 0.75,
      max_position_embeddings: 512,
      original_max_position_embeddings: 256,
      rope_scaling: longrope(6),
    },
  },
  // All texts are longer than the original context, as llama.cpp's own is. A step has short texts alone: it is trained
  // by the long ones' angles under that name.
  "llama-longrope": {
    tokenizer: "trained",
    trainedAs: {
      rope_scaling: {
        ...LONG,
        short_factor: LONG.long_factor,
        original_max_position_embeddings: 256,
      },
    },
    config: { ...BASE, model_type: "llama", rope_scaling: LONG },
  },
  "llama-scores": {
    tokenizer: "scores",
    config: { ...BASE, model_type: "llama", intermediate_size: 96 },
  },
  gpt2: {
    tokenizer: "trained",
    apart: 2e-3,
    config: {
      model_type: "gpt2",
      n_embd: 64,
      n_inner: 80,
      n_layer: 2,
      n_head: 4,
      n_positions: 256,
    },
  },
  // As Pythia is: blocks side by side, a quarter of each head turned, GELU by the error function.
  gpt_neox: {
    tokenizer: "neox",
    apart: 4e-3,
    config: {
      model_type: "gpt_neox",
      hidden_size: 64,
      intermediate_size: 96,
      num_hidden_layers: 2,
      num_attention_heads: 4,
      max_position_embeddings: 256,
    },
  },
  "gpt_neox-sequential": {
    tokenizer: "trained",
    readAs: ["hidden_act"],
    apart: 2e-3,
    config: {
      model_type: "gpt_neox",
      hidden_size: 64,
      intermediate_size: 80,
      num_hidden_layers: 2,
      num_attention_heads: 2,
      max_position_embeddings: 256,
      hidden_act: "gelu_new",
      use_parallel_residual: false,
      rotary_pct: 0.5,
      rotary_emb_base: 500,
      rope_scaling: { rope_type: "linear", factor: 2 },
    },
  },
  gemma: {
    tokenizer: "gemma",
    apart: 5e-3,
    config: { ...BASE, model_type: "gemma", head_dim: 32 },
  },
  gemma2: {
    tokenizer: "trained",
    apart: 5e-3,
    config: {
      ...BASE,
      model_type: "gemma2",
      head_dim: 32,
      query_pre_attn_scalar: 32,
      sliding_window: 24,
      attn_logit_softcapping: 5,
      final_logit_softcapping: 12,
    },
  },
  // As the released ones are: every sixth layer has no window, and angles of its own.
  gemma3: {
    tokenizer: "gemma",
    apart: 4e-4,
    config: {
      ...BASE,
      model_type: "gemma3_text",
      num_hidden_layers: 6,
      intermediate_size: 96,
      head_dim: 32,
      query_pre_attn_scalar: 32,
      sliding_window: 24,
      rope_parameters: {
        full_attention: { rope_type: "linear", rope_theta: 1e6, factor: 8 },
        sliding_attention: { rope_type: "default", rope_theta: 1e4 },
      },
    },
  },
  "gemma3-others": {
    tokenizer: "trained",
    apart: 4e-4,
    config: {
      ...BASE,
      model_type: "gemma3_text",
      num_hidden_layers: 3,
      head_dim: 32,
      query_pre_attn_scalar: 32,
      sliding_window: 24,
      sliding_window_pattern: 2,
      rope_theta: 2000,
      rope_local_base_freq: 50,
    },
  },
};

export const TYPES = ["f32", "f16", "q8_0", "q4_0"];

export const PROMPT = "First the weaver lifts every";
/** Texts whose ids both sides have to make the same of. */
export const TEXTS = [
  TEXT,
  "a  b   c\n\n\n d\t\te \r\n f",
  "12345 6.78 9,000 1st ½ ²",
  "IT'S we'Ll they'RE don't — “quoted” naïve ÅÄÖ",
  "织布机 🧵🧶 é \u200d end",
  " leading and trailing ",
];
