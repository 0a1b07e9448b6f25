//! Llama (Touvron et al., arXiv:2302.13971), and Mistral, which adds a sliding window.

use super::describe::Describe;
use super::{Architecture, HeadNorms, Layer};

pub(super) fn describe(model: Describe) -> Architecture {
    decoder(model, Differences { qkv_bias: false, head_norms: |_, _| None })
}

/// In what a family's layers differ from Llama's.
#[derive(Clone, Copy)]
pub(super) struct Differences {
    /// The products that give queries, keys and values have biases.
    pub qkv_bias: bool,
    /// Adds the norms of queries and keys to the layer of this index.
    pub head_norms: fn(&mut Describe, usize) -> Option<HeadNorms>,
}

pub(super) fn decoder(mut model: Describe, differences: Differences) -> Architecture {
    let config = model.config;
    let (vocab_size, hidden) = (config.vocab_size, config.hidden_size);
    let embedding = model.matrix(hidden, &[("model.embed_tokens".into(), vocab_size)]);
    let layers =
        (0..config.num_hidden_layers).map(|index| layer(&mut model, index, differences)).collect();
    let final_norm = model.norm("model.norm", hidden);
    let head = if config.tie_word_embeddings {
        embedding
    } else {
        model.matrix(hidden, &[("lm_head".into(), vocab_size)])
    };
    Architecture {
        vocab_size,
        hidden,
        positions: config.max_position_embeddings,
        rope: Some(model.rope()),
        embedding,
        position_embedding: None,
        layers,
        final_norm,
        head,
        low_rank: vec![],
        weights: model.weights,
    }
}

fn layer(model: &mut Describe, index: usize, differences: Differences) -> Layer {
    let (hidden, feed) = (model.config.hidden_size, model.config.intermediate_size);
    let attention = model.attention();
    let (query, key_value) = (attention.width(), attention.kv_heads * attention.head_dim);
    let name = |module: &str| format!("model.layers.{index}.{module}");
    let qkv = [
        (name("self_attn.q_proj"), query),
        (name("self_attn.k_proj"), key_value),
        (name("self_attn.v_proj"), key_value),
    ];
    let gate_up = [(name("mlp.gate_proj"), feed), (name("mlp.up_proj"), feed)];
    Layer {
        attention_norm: model.norm(&name("input_layernorm"), hidden),
        qkv: model.linear(hidden, &qkv, differences.qkv_bias),
        head_norms: (differences.head_norms)(model, index),
        attention,
        output: model.linear(query, &[(name("self_attn.o_proj"), hidden)], false),
        mlp_norm: model.norm(&name("post_attention_layernorm"), hidden),
        gate_up: model.linear(hidden, &gate_up, false),
        gated: true,
        feed,
        activation: model.config.hidden_act,
        down: model.linear(feed, &[(name("mlp.down_proj"), hidden)], false),
    }
}
