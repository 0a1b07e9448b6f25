// Written by `TINYLOOM_TYPES=write cargo test -p tinyloom-model typescript` from the families in crates/model/src/arch.

import type { RopeParameters } from "./rope-parameters.js";

/** The fields of `config.json` that tinyloom reads, of all families. */
export interface ConfigFields {
  model_type?:
    | "llama"
    | "mistral"
    | "qwen2"
    | "qwen3"
    | "gpt2"
    | "gpt_neo"
    | "gpt_neox"
    | "gemma"
    | "gemma2"
    | "gemma3_text"
    | "smollm3"
    | "olmo2"
    | "granite"
    | "stablelm"
    | "phi3"
    | "tinyloom";
  hidden_size?: number;
  num_attention_heads?: number;
  num_hidden_layers?: number;
  max_position_embeddings?: number;
  /** Heads of keys and values; `num_attention_heads` must be a multiple. */
  num_key_value_heads?: number | null;
  /** Width of a head, a multiple of 4 up to 256; default `hidden_size / num_attention_heads`. */
  head_dim?: number | null;
  /** The base of RoPE; null in a layer of a tinyloom model: it has none. */
  rope_theta?: number | null;
  /** How RoPE reaches longer texts, as transformers 5 has it; its version 4 calls it `rope_scaling`. */
  rope_parameters?: RopeParameters | null;
  /** The same, as transformers 4 has it. */
  rope_scaling?: RopeParameters | null;
  /** Width of the feed-forward block; null in GPT-2 and GPT-Neo: 4 · `hidden_size`. */
  intermediate_size?: number | null;
  vocab_size?: number;
  rms_norm_eps?: number;
  tie_word_embeddings?: boolean;
  /** `"swish"` is `"silu"`, and `"gelu_new"` is `"gelu_pytorch_tanh"`. */
  hidden_act?: "silu" | "swish" | "gelu" | "gelu_pytorch_tanh" | "gelu_new";
  initializer_range?: number;
  /** Attention scores become `cap · tanh(score / cap)`. `save()` keeps this field, and notes in the saved config where transformers' model ignores it; that of Gemma 2 reads it. */
  attn_logit_softcapping?: number | null;
  /** Products around attention have biases (Llama, SmolLM3, OLMo 2, Granite, GPT-NeoX). Default false, in GPT-NeoX true. */
  attention_bias?: boolean;
  /** Products of the feed-forward block have biases (Llama, SmolLM3, Granite). Default false. */
  mlp_bias?: boolean;
  /** The share of the keys of each query that training leaves out. */
  attention_dropout?: number;
  /** A position sees at most this many of the latest positions, itself included. If all layers have a window (Mistral), the cache of `generate` keeps only these and one chunk of the prompt, for a text of any length. */
  sliding_window?: number | null;
  /** Whether layers of Qwen2 and Qwen3 from `max_window_layers` on have the window `sliding_window`. Default false. */
  use_sliding_window?: boolean;
  /** `hidden_size` of gpt2. */
  n_embd?: number;
  /** `num_attention_heads` of gpt2. */
  n_head?: number;
  /** `num_hidden_layers` of gpt2. */
  n_layer?: number;
  /** `max_position_embeddings` of gpt2. */
  n_positions?: number;
  /** Old configs of GPT-2 have it; it must be `n_positions`. */
  n_ctx?: number;
  /** `intermediate_size` of gpt2. */
  n_inner?: number | null;
  /** `rms_norm_eps` of gpt2 and gpt_neo. */
  layer_norm_epsilon?: number;
  /** `hidden_act` of gpt2 and gpt_neo. */
  activation_function?: "silu" | "swish" | "gelu" | "gelu_pytorch_tanh" | "gelu_new";
  /** The share of the elements of embeddings that training leaves out. */
  embd_pdrop?: number;
  /** `attention_dropout` of gpt2. */
  attn_pdrop?: number;
  /** The share of what each block adds that training leaves out. */
  resid_pdrop?: number;
  /** `num_attention_heads` of gpt_neo. */
  num_heads?: number;
  /** `num_hidden_layers` of gpt_neo. */
  num_layers?: number;
  /** `sliding_window` of gpt_neo. */
  window_size?: number;
  /** What the layers of GPT-Neo see: kinds, and how often they follow. Default: global and local in turns. */
  attention_types?: [("global" | "local")[], number][] | null;
  /** The same, one kind for each layer. */
  attention_layers?: ("global" | "local")[] | null;
  /** `embd_pdrop` of gpt_neo. */
  embed_dropout?: number;
  /** `resid_pdrop` of gpt_neo. */
  resid_dropout?: number;
  /** `rope_theta` of gpt_neox. */
  rotary_emb_base?: number | null;
  /** `partial_rotary_factor` of gpt_neox. */
  rotary_pct?: number;
  /** `rms_norm_eps` of gpt_neox and stablelm. */
  layer_norm_eps?: number;
  /** Both blocks of a layer of GPT-NeoX read the layer's input. Default true. */
  use_parallel_residual?: boolean;
  /** The share of embeddings, and of what each block adds, that training of GPT-NeoX leaves out. */
  hidden_dropout?: number;
  /** The same as `hidden_act`, as Gemma 2 and 3 spell it. Default `"gelu_pytorch_tanh"`. */
  hidden_activation?: "silu" | "swish" | "gelu" | "gelu_pytorch_tanh" | "gelu_new";
  /** Logits become `cap · tanh(logit / cap)` (Gemma 2 and 3). */
  final_logit_softcapping?: number | null;
  /** Attention scores are divided by its square root (Gemma 2 and 3); elsewhere by that of `head_dim`. */
  query_pre_attn_scalar?: number;
  /** Which layers of Gemma 2 and 3 have a window, one name for each layer. Default: all but every second layer, in Gemma 3 all but every sixth. */
  layer_types?: ("sliding_attention" | "full_attention")[] | null;
  /** The base of RoPE in layers with a window (Gemma 3). */
  rope_local_base_freq?: number;
  /** One layer of Gemma 3 in this many has no window, where `layer_types` is left out. Default 6. */
  sliding_window_pattern?: number;
  /** One layer of SmolLM3 in this many has no RoPE, where `no_rope_layers` is left out. Default 4. */
  no_rope_layer_interval?: number;
  /** For each layer of SmolLM3 1 if it has RoPE, and 0 if it has none. */
  no_rope_layers?: (0 | 1)[] | null;
  /** Has no effect. */
  pretraining_tp?: number;
  /** Factor on the embeddings of Granite. Default 1. */
  embedding_multiplier?: number;
  /** What the logits of Granite are divided by. Default 1. */
  logits_scaling?: number;
  /** Factor on what each block of Granite adds. Default 1. */
  residual_multiplier?: number;
  /** Granite multiplies attention scores by it, in place of 1/√`head_dim`. Default 1. */
  attention_multiplier?: number;
  /** The share of each head that RoPE rotates. */
  partial_rotary_factor?: number;
  /** Products that give queries, keys and values of StableLM have biases. Default false. */
  use_qkv_bias?: boolean;
  /** Positions of the first training: longer texts turn by the long factors of `longrope`. */
  original_max_position_embeddings?: number;
  /** Each position of a tinyloom model has a learned row, added to the embedding; its layers have no RoPE then unless they give `rope_theta`. Default false. */
  learned_positions?: boolean;
  /** A tinyloom model has a norm before its head, of the model's `norm_type`. Default true. */
  final_norm?: boolean;
  /** Written by `save()`, which adds the file for transformers to models of `model_type: "tinyloom"`. */
  auto_map?: Record<string, string>;
  /** What layers of a tinyloom model have other than the fields beside it say: an object for each, `{}` for none, or for `repeat` of them that follow each other. A list of fewer layers begins again. */
  layers?: LayerFields[];
  /** A layer of a tinyloom model has attention. Default true. */
  attention?: boolean;
  /** Queries and keys of each head have an RMS norm (tinyloom models). Default false. */
  qk_norm?: boolean;
  /** A layer of a tinyloom model has a feed-forward block. Default true. */
  mlp?: boolean;
  /** The feed-forward block of a tinyloom model is `down(act(gate) · up)`, else `down(act(up))`. Default true. */
  gated?: boolean;
  /** Both blocks of a layer of a tinyloom model read the layer's input. Default false. */
  parallel?: boolean;
  /** Where blocks of a tinyloom model have norms: of what a block reads (`"before"`), of what it adds (`"after"`), `"both"`, of the residual stream that it has added to (`"sum"`), or `"none"`. Default `"before"`. */
  norm?: "before" | "after" | "both" | "sum" | "none";
  /** RMSNorm, or LayerNorm with a bias (tinyloom models). Default `"rms"`. */
  norm_type?: "rms" | "layer";
  /** `rms_norm_eps` of tinyloom. */
  norm_eps?: number;
}

/** What a layer of a tinyloom model has other than the model's config says. */
export interface LayerFields
  extends Pick<
    ConfigFields,
    | "attention"
    | "num_attention_heads"
    | "num_key_value_heads"
    | "head_dim"
    | "rope_theta"
    | "partial_rotary_factor"
    | "sliding_window"
    | "qk_norm"
    | "attn_logit_softcapping"
    | "attention_bias"
    | "mlp"
    | "intermediate_size"
    | "gated"
    | "hidden_act"
    | "mlp_bias"
    | "parallel"
    | "norm"
    | "norm_type"
    | "norm_eps"
  > {
  /** For how many layers the entry stands that follow each other. Default 1. */
  repeat?: number;
}
