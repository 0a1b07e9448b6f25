//! GPT-2 (Radford et al., "Language models are unsupervised multitask learners", 2019) and DistilGPT-2.

use super::describe::{Describe, Modules};
use super::{Architecture, Init, Layer, Stored};

/// Where the tensors of the whole checkpoint begin. Files of the model without its head lack it.
const PREFIX: &str = "transformer";

pub(super) fn describe(model: Describe) -> Architecture {
    decoder(model, layer)
}

/// Learned positions, and layers of which each is described by its block's name and its index.
pub(super) fn decoder(
    mut model: Describe,
    layer: fn(&mut Describe, String, usize) -> Layer,
) -> Architecture {
    let config = model.config;
    let (vocab_size, hidden) = (config.vocab_size, config.hidden_size);
    let positions = config.max_position_embeddings;
    let name = |module: &str| format!("{PREFIX}.{module}");
    let embedding = model.matrix(hidden, &[(name("wte"), vocab_size)]);
    let position_embedding = Some(model.matrix(hidden, &[(name("wpe"), positions)]));
    let layers = (0..config.num_hidden_layers)
        .map(|index| layer(&mut model, name(&format!("h.{index}")), index))
        .collect();
    let final_norm = model.layer_norm(&name("ln_f"), hidden);
    let head = if config.tie_word_embeddings {
        embedding
    } else {
        model.matrix(hidden, &[("lm_head".into(), vocab_size)])
    };
    Architecture {
        vocab_size,
        hidden,
        positions,
        ropes: vec![],
        embedding,
        embedding_scale: None,
        position_embedding,
        layers,
        final_norm,
        head,
        logit_soft_cap: None,
        low_rank: vec![],
        weights: model.weights,
    }
}

fn layer(model: &mut Describe, block: String, index: usize) -> Layer {
    let attention = model.attention(index);
    let layer = model.plain_layer(
        attention,
        &Modules {
            block,
            qkv: &[("attn.c_attn", attention.stride())],
            output: "attn.c_proj",
            norms: ["ln_1", "ln_2"],
            up: "mlp.c_fc",
            down: "mlp.c_proj",
            stored: [Stored::Columns; 2],
            biased: [true; 2],
            parallel: false,
        },
    );
    // What is added to the residual stream begins smaller, the more layers there are.
    let config = model.config;
    let small = config.initializer_range / libm::sqrt(2.0 * config.num_hidden_layers as f64);
    for product in [layer.output, layer.down] {
        model.weights[product.weight].params[0].init = Init::Normal(small);
    }
    layer
}
