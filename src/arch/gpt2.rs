//! GPT-2 (Radford et al., "Language models are unsupervised multitask learners", 2019) and DistilGPT-2.

use super::describe::Describe;
use super::{Architecture, Init, Layer};

/// Where the tensors of the whole checkpoint begin. Files of the model without its head lack it.
const PREFIX: &str = "transformer";

pub(super) fn describe(mut model: Describe) -> Architecture {
    let config = model.config;
    let (vocab_size, hidden) = (config.vocab_size, config.hidden_size);
    let positions = config.max_position_embeddings;
    let name = |module: &str| format!("{PREFIX}.{module}");
    let embedding = model.matrix(hidden, &[(name("wte"), vocab_size)]);
    let position_embedding = Some(model.matrix(hidden, &[(name("wpe"), positions)]));
    // The matrices of the layers are stored [in, out].
    model.transposed = true;
    let layers = (0..config.num_hidden_layers).map(|index| layer(&mut model, index)).collect();
    model.transposed = false;
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
        rope: None,
        window_rope: None,
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

fn layer(model: &mut Describe, index: usize) -> Layer {
    let config = model.config;
    let (hidden, feed) = (config.hidden_size, config.intermediate_size);
    let attention = model.attention(index);
    let name = |module: &str| format!("{PREFIX}.h.{index}.{module}");
    let qkv = [(name("attn.c_attn"), attention.stride())];
    // What is added to the residual stream begins smaller, the more layers there are.
    let range = config.initializer_range;
    let small = Init::Normal(range / libm::sqrt(2.0 * config.num_hidden_layers as f64));
    let attention_norm = model.layer_norm(&name("ln_1"), hidden);
    let qkv = model.linear(hidden, &qkv, true);
    let output = model.linear(attention.width(), &[(name("attn.c_proj"), hidden)], true);
    let mlp_norm = model.layer_norm(&name("ln_2"), hidden);
    let gate_up = model.linear(hidden, &[(name("mlp.c_fc"), feed)], true);
    let down = model.linear(feed, &[(name("mlp.c_proj"), hidden)], true);
    model.weights[output.weight].params[0].init = small;
    model.weights[down.weight].params[0].init = small;
    Layer {
        attention_norm,
        qkv,
        head_norms: None,
        attention,
        output,
        attention_post_norm: None,
        mlp_norm,
        gate_up,
        gated: false,
        feed,
        activation: config.hidden_act,
        down,
        mlp_post_norm: None,
    }
}
