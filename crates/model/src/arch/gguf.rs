//! How llama.cpp's files store a family, by the names of its `convert_hf_to_gguf.py`. `pkg/src/gguf` writes them.

/// Another order of a tensor's elements, or other elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Pairs of the rotary embedding side by side: llama.cpp rotates elements 2i and 2i + 1 of a head, transformers'
    /// i and i + head_dim / 2.
    Pairs,
    /// llama.cpp's norms multiply by the weight, Gemma's by 1 + the weight.
    PlusOne,
    /// Rows by outputs, which the checkpoint has by inputs.
    Transposed,
    /// All queries, then all keys, then all values, which the checkpoint has head by head.
    Stacked,
}

/// What llama.cpp has of a family.
#[derive(Clone, Copy, Debug)]
pub struct Gguf {
    /// The architecture's name, which is the prefix of its keys.
    pub architecture: &'static str,
    /// llama.cpp's names of modules. Those with a layer are in `blk.N.`. The first list that names a module counts.
    pub modules: &'static [&'static [(&'static str, &'static str)]],
    /// What is changed of a module's parameters.
    pub changes: &'static [(&'static str, Change)],
    /// Fields of which llama.cpp computes only some values, as JSON texts. A list is repeated over the layers.
    pub expected: &'static [(&'static str, &'static [&'static str])],
}

/// Names of the decoder that Llama began.
pub const DECODER: &[(&str, &str)] = &[
    ("embed_tokens", "token_embd"),
    ("norm", "output_norm"),
    ("lm_head", "output"),
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("post_attention_layernorm", "ffn_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];
/// Norms of each head's queries and keys.
pub const HEAD_NORMS: &[(&str, &str)] =
    &[("self_attn.q_norm", "attn_q_norm"), ("self_attn.k_norm", "attn_k_norm")];

/// llama.cpp's attention of most families has no soft cap.
pub const UNCAPPED: (&str, &[&str]) = ("attn_logit_softcapping", &["null"]);
pub const SILU: (&str, &[&str]) = ("hidden_act", &[r#""silu""#]);
/// What llama.cpp computes of the GELUs: the tanh form, also where transformers computes the error function.
pub const GELU: &[&str] = &[r#""gelu""#, r#""gelu_new""#, r#""gelu_pytorch_tanh""#];
