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

/** Models by name: `config` without its vocabulary, the `tokenizer`, and what it `learns`, if not all of the text. */
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
  "llama-scores": {
    tokenizer: "scores",
    config: { ...BASE, model_type: "llama", intermediate_size: 96 },
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
