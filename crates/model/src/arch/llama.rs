//! Llama (Touvron et al., arXiv:2302.13971), and Mistral, which adds a sliding window.

use super::describe::Describe;
use super::gguf::{Change, DECODER, Gguf, SILU, UNCAPPED};
use super::{
    Architecture, Attention, AttentionBlock, BlockNorms, Family, FeedForward, Layer, NormKind,
    Rope, RopeId,
};
use crate::config::slots::*;
use crate::config::{Missing, ModelConfig, NO_BIASES};

pub(super) static LLAMA: Family = Family {
    names: ["llama", "LlamaForCausalLM"],
    like: None,
    fields: &[
        HIDDEN_SIZE.or(Missing::Size(4096)),
        HEADS.or(Missing::Size(32)),
        LAYERS.or(Missing::Size(32)),
        POSITIONS.or(Missing::Size(2048)),
        KEY_VALUE_HEADS.or_nothing(),
        HEAD_DIM.or_nothing(),
        ROPE.or(Missing::Real(1e4)),
        ROPE_PARAMETERS.or_nothing(),
        ROPE_SCALING.or_nothing(),
        INTERMEDIATE_SIZE.or(Missing::Size(11_008)),
        VOCAB_SIZE.or(Missing::Size(32_000)),
        NORM_EPS.or(Missing::Real(1e-6)),
        TIED.or(Missing::Flag(false)),
        HIDDEN_ACT.or(Missing::Activation("silu")),
        INITIALIZER_RANGE.or(Missing::Real(0.02)),
        SOFT_CAP.or_nothing(),
        ATTENTION_BIAS.or_nothing(),
        MLP_BIAS.or_nothing(),
        ATTENTION_DROPOUT.or(Missing::Real(0.0)),
    ],
    refused: &[],
    gguf: Some(GGUF),
    describe,
};

const GGUF: Gguf = Gguf {
    architecture: "llama",
    modules: &[DECODER],
    changes: PAIRS,
    expected: &[SILU, UNCAPPED],
};
/// What llama.cpp's Llama rotates.
pub(super) const PAIRS: &[(&str, Change)] =
    &[("self_attn.q_proj", Change::Pairs), ("self_attn.k_proj", Change::Pairs)];

pub(super) static MISTRAL: Family = Family {
    names: ["mistral", "MistralForCausalLM"],
    like: Some(&LLAMA),
    fields: &[
        POSITIONS.or(Missing::Size(131_072)),
        KEY_VALUE_HEADS.or(Missing::Size(8)),
        INTERMEDIATE_SIZE.or(Missing::Size(14_336)),
        WINDOW.or(Missing::Size(4096)).with_nulls(),
    ],
    refused: &NO_BIASES,
    gguf: Some(GGUF),
    describe,
};

fn describe(model: Describe) -> Architecture {
    decoder(model, Differences::NONE)
}

/// Where a layer's norms of rows are: before each block, after it, or both.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Place {
    Before,
    Behind,
    Around,
}

/// Whether queries and keys have norms: of each head, or of all heads together.
#[derive(Clone, Copy)]
pub(super) enum HeadsNormed {
    No,
    Each,
    Together,
}

/// In what a family's layers differ from Llama's.
#[derive(Clone, Copy)]
pub(super) struct Differences {
    pub norms: NormKind,
    /// The products that give queries, keys and values have biases.
    pub qkv_bias: bool,
    /// The checkpoint has one matrix for queries, keys and values, and one for gate and up.
    pub joined: bool,
    pub head_norms: HeadsNormed,
    pub norms_at: Place,
    /// Embeddings are multiplied by √hidden.
    pub scaled_embedding: bool,
    /// What stands for a missing `pad_token_id`.
    pub padding: Option<usize>,
    /// The rotary embedding of a layer with this attention: the model's own, or that of layers with a window.
    pub rope: fn(&ModelConfig, usize, Attention) -> Option<RopeId>,
}

impl Differences {
    pub const NONE: Self = Self {
        norms: NormKind::Rms,
        qkv_bias: false,
        joined: false,
        head_norms: HeadsNormed::No,
        norms_at: Place::Before,
        scaled_embedding: false,
        padding: None,
        rope: |_, _, _| Some(0),
    };
}

pub(super) fn decoder(mut model: Describe, differences: Differences) -> Architecture {
    let config = model.config;
    model.norms = differences.norms;
    let of_windows = config.rope_local.clone();
    let of_windows = of_windows.map(|config| Rope { head_dim: model.config.head_dim, config });
    let ropes = [model.rope()].into_iter().chain(of_windows).collect();
    let hidden = config.hidden_size;
    let embedding = model.matrix(hidden, &[("model.embed_tokens".into(), config.vocab_size)]);
    let layers =
        (0..config.num_hidden_layers).map(|index| layer(&mut model, index, differences)).collect();
    let final_norm = model.norm("model.norm", hidden);
    Architecture {
        ropes,
        padding: config.padding(differences.padding),
        embedding_scale: differences.scaled_embedding.then(|| libm::sqrt(hidden as f64)),
        logit_soft_cap: config.final_logit_softcapping,
        ..model.architecture(embedding, layers, final_norm, "lm_head")
    }
}

fn layer(model: &mut Describe, index: usize, differences: Differences) -> Layer {
    let (hidden, feed) = (model.config.hidden_size, model.config.intermediate_size);
    let attention = model.attention(index);
    let rope = (differences.rope)(model.config, index, attention);
    let attention = Attention { rope, ..attention };
    let (query, key_value) = (attention.width(), attention.kv_heads * attention.head_dim);
    let name = |module: &str| format!("model.layers.{index}.{module}");
    let mut qkv = vec![
        (name("self_attn.q_proj"), query),
        (name("self_attn.k_proj"), key_value),
        (name("self_attn.v_proj"), key_value),
    ];
    let place = differences.norms_at;
    let (before, behind) = (place != Place::Behind, place != Place::Before);
    // With norms of what a block adds, the one before the feed-forward block has another name.
    let mlp_norm = if behind { "pre_feedforward_layernorm" } else { "post_attention_layernorm" };
    let head_norms = match differences.head_norms {
        HeadsNormed::No => None,
        HeadsNormed::Each => Some(attention.head_dim),
        HeadsNormed::Together => Some(query),
    };
    let [biased, mlp_biased] = [&ATTENTION_BIAS, &MLP_BIAS].map(|slot| model.config.own_flag(slot));
    let mut gate_up = vec![(name("mlp.gate_proj"), feed), (name("mlp.up_proj"), feed)];
    if differences.joined {
        qkv = vec![(name("self_attn.qkv_proj"), attention.stride())];
        gate_up = vec![(name("mlp.gate_up_proj"), 2 * feed)];
    }
    // Weights are in the order in which they are described.
    let before_attention = before.then(|| model.norm(&name("input_layernorm"), hidden));
    let qkv = model.linear(hidden, &qkv, differences.qkv_bias || biased);
    let head_norms = head_norms.map(|columns| model.head_norms(&name("self_attn"), columns));
    let output = model.linear(query, &[(name("self_attn.o_proj"), hidden)], biased);
    let behind_attention = behind.then(|| model.norm(&name("post_attention_layernorm"), hidden));
    let before_mlp = before.then(|| model.norm(&name(mlp_norm), hidden));
    let gate_up = model.linear(hidden, &gate_up, mlp_biased);
    let down = model.linear(feed, &[(name("mlp.down_proj"), hidden)], mlp_biased);
    let behind_mlp = behind.then(|| model.norm(&name("post_feedforward_layernorm"), hidden));
    let norms = |before, behind| BlockNorms { before, behind, of_sum: None };
    let attention_norms = norms(before_attention, behind_attention);
    let activation = model.config.hidden_act;
    Layer {
        attention: Some(AttentionBlock {
            norms: attention_norms,
            qkv,
            head_norms,
            attention,
            output,
        }),
        parallel: false,
        mlp: Some(FeedForward {
            norms: norms(before_mlp, behind_mlp),
            gate_up,
            gated: true,
            feed,
            activation,
            down,
        }),
    }
}
