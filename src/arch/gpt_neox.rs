//! GPT-NeoX (Black et al., arXiv:2204.06745) and Pythia (Biderman et al., arXiv:2304.01373): both blocks of a layer
//! read one input, the beginning of each head turns, and queries, keys and values are stored head by head.

use super::describe::{Describe, Modules};
use super::{Architecture, Attention, Layer, Stored};

pub(super) fn describe(mut model: Describe) -> Architecture {
    let config = model.config;
    let (vocab_size, hidden) = (config.vocab_size, config.hidden_size);
    let embedding = model.matrix(hidden, &[("gpt_neox.embed_in".into(), vocab_size)]);
    let layers = (0..config.num_hidden_layers).map(|index| layer(&mut model, index)).collect();
    let final_norm = model.layer_norm("gpt_neox.final_layer_norm", hidden);
    let head = if config.tie_word_embeddings {
        embedding
    } else {
        model.matrix(hidden, &[("embed_out".into(), vocab_size)])
    };
    Architecture {
        vocab_size,
        hidden,
        positions: config.max_position_embeddings,
        ropes: vec![model.rope()],
        embedding,
        embedding_scale: None,
        position_embedding: None,
        layers,
        final_norm,
        head,
        logit_soft_cap: None,
        low_rank: vec![],
        weights: model.weights,
    }
}

fn layer(model: &mut Describe, index: usize) -> Layer {
    let attention = Attention { rope: Some(0), ..model.attention(index) };
    let config = model.config;
    model.plain_layer(
        attention,
        &Modules {
            block: format!("gpt_neox.layers.{index}"),
            qkv: &[("attention.query_key_value", attention.stride())],
            output: "attention.dense",
            norms: ["input_layernorm", "post_attention_layernorm"],
            up: "mlp.dense_h_to_4h",
            down: "mlp.dense_4h_to_h",
            stored: [Stored::Heads(attention.head_dim), Stored::Rows],
            biased: [config.attention_bias; 2],
            parallel: config.parallel_residual,
        },
    )
}
