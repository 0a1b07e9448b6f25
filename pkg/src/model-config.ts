/** A model's config, as the caller gives it. */

import { isTinyloomError } from "./error.js";
import { CONFIG_BYTES } from "./file-part.js";
import { invalid, object, show } from "./options.js";

/** Scaling of the rotary embedding. Which fields a type needs is as in transformers. */
export interface RopeParameters {
  rope_type?: "default" | "linear" | "llama3" | "yarn";
  rope_theta?: number;
  factor?: number;
  low_freq_factor?: number;
  high_freq_factor?: number;
  original_max_position_embeddings?: number;
  /** GPT-NeoX turns this share of each head. */
  partial_rotary_factor?: number;
  attention_factor?: number | null;
  beta_fast?: number | null;
  beta_slow?: number | null;
  truncate?: boolean;
  /** Gemma 3 has one object for its layers without a window and one for those with it. */
  full_attention?: RopeParameters;
  sliding_attention?: RopeParameters;
  [name: string]: unknown;
}

/**
 * A model's config, with the names of Hugging Face's `config.json`. What is left out defaults as in
 * transformers; what tinyloom does not compute is refused by name with code "invalid-config".
 */
export interface ModelConfig {
  model_type?:
    | "llama"
    | "mistral"
    | "qwen2"
    | "qwen3"
    | "gemma"
    | "gemma2"
    | "gemma3_text"
    | "gpt2"
    | "gpt_neo"
    | "gpt_neox";
  vocab_size?: number;
  hidden_size?: number;
  intermediate_size?: number;
  num_hidden_layers?: number;
  num_attention_heads?: number;
  /** Heads of keys and values; `num_attention_heads` must be a multiple. */
  num_key_value_heads?: number;
  /** Width of a head, a multiple of 4 up to 256; default `hidden_size / num_attention_heads`. */
  head_dim?: number;
  max_position_embeddings?: number;
  rms_norm_eps?: number;
  rope_theta?: number;
  /** The same in layers with a window (Gemma 3). */
  rope_local_base_freq?: number;
  /** How RoPE reaches longer texts, as transformers 5 has it; its version 4 calls it `rope_scaling`. */
  rope_parameters?: RopeParameters | null;
  rope_scaling?: RopeParameters | null;
  tie_word_embeddings?: boolean;
  /** `"swish"` is `"silu"`, and `"gelu_new"` is `"gelu_pytorch_tanh"`. Default `"silu"`. */
  hidden_act?: "silu" | "swish" | "gelu" | "gelu_pytorch_tanh" | "gelu_new";
  /** The same, as Gemma 2 and 3 spell it. Default `"gelu_pytorch_tanh"`. */
  hidden_activation?: ModelConfig["hidden_act"];
  initializer_range?: number;
  /**
   * A position sees at most this many of the latest positions, itself included (Mistral). The cache of
   * `generate` then keeps only these and one chunk of the prompt, for a text of any length.
   */
  sliding_window?: number | null;
  /**
   * Which layers of Gemma 2 and 3 have that window, one name for each layer. Default: all but every second
   * layer, in Gemma 3 all but every sixth.
   */
  layer_types?: ("sliding_attention" | "full_attention")[] | null;
  /** Which layers of Gemma 3 have no window, where `layer_types` is left out: every so many. Default 6. */
  sliding_window_pattern?: number;
  /**
   * Attention scores become `cap · tanh(score / cap)`. `save()` keeps this field, and notes in the saved
   * config where transformers' model ignores it; that of Gemma 2 reads it.
   */
  attn_logit_softcapping?: number | null;
  /** Logits become `cap · tanh(logit / cap)` (Gemma 2 and 3). */
  final_logit_softcapping?: number | null;
  /** Attention scores are divided by its square root (Gemma 2 and 3); elsewhere by that of `head_dim`. */
  query_pre_attn_scalar?: number;
  /** GPT-2 spells these fields so; they stand for `hidden_size` and so on. */
  n_embd?: number;
  /** Default 4 · `n_embd`. */
  n_inner?: number | null;
  n_layer?: number;
  n_head?: number;
  n_positions?: number;
  layer_norm_epsilon?: number;
  /** Default `"gelu_new"`; of GPT-Neo too. */
  activation_function?: ModelConfig["hidden_act"];
  /** GPT-Neo spells these fields so; they stand for `num_hidden_layers`, `num_attention_heads`, `sliding_window`. */
  num_layers?: number;
  num_heads?: number;
  /** The window of layers that `attention_types` calls local. Default 256. */
  window_size?: number;
  /** What the layers of GPT-Neo see: kinds, and how often they follow. Default: global and local in turns. */
  attention_types?: [("global" | "local")[], number][] | null;
  /** The same, one kind for each layer. */
  attention_layers?: ("global" | "local")[] | null;
  /** GPT-NeoX spells these fields so; they stand for `rms_norm_eps` and `rope_theta`. */
  layer_norm_eps?: number;
  rotary_emb_base?: number;
  /** The share of each head of GPT-NeoX that RoPE turns. Default 0.25. */
  rotary_pct?: number;
  /** Products around attention of GPT-NeoX have biases. Default true; other families allow only false. */
  attention_bias?: boolean;
  /** Both blocks of a layer of GPT-NeoX read the layer's input. Default true. */
  use_parallel_residual?: boolean;
  [name: string]: unknown;
}

/** The config's JSON text; what JSON cannot hold is refused by name, since it would be left out. */
export function configJson(where: string, config: unknown): string {
  const refuse = (message: string, cause?: unknown) =>
    invalid(`${where}: ${message}`, "invalid-config", cause);
  const long = () =>
    refuse(
      `the config takes more than ${CONFIG_BYTES} bytes as JSON; take out the fields that are not the model's`,
    );
  // Counted as it is made: the text of what is far too large is never whole.
  let length = 0;
  const keep = (name: string, value: unknown) => {
    const type = typeof value;
    if (type === "number" ? !Number.isFinite(value) : /^(bigint|function|symbol)$/.test(type)) {
      throw refuse(`config field ${show(name)} is ${show(value)}; give what JSON can hold`);
    }
    length += name.length + (type === "string" ? (value as string).length : 1);
    if (length > CONFIG_BYTES) throw long();
    return value;
  };
  let json: string | undefined;
  try {
    if (object(config) !== undefined) {
      throw refuse(`give a plain config object, not ${show(config)}`);
    }
    json = JSON.stringify(config, keep);
  } catch (cause) {
    throw isTinyloomError(cause)
      ? cause
      : refuse(`the config cannot be made JSON (${show(cause)})`, cause);
  }
  if (json === undefined) throw refuse("the config's toJSON gives nothing");
  if (json.length > CONFIG_BYTES) throw long();
  return json;
}
