//! GPT-2 (Radford et al., "Language models are unsupervised multitask learners", 2019) and DistilGPT-2.

use super::describe::{Describe, Modules};
use super::gguf::{Change, GELU, Gguf, UNCAPPED};
use super::{Architecture, Family, Init, Layer, Stored};
use crate::config::slots::*;
use crate::config::{Field, Fields, Kind, Missing, ModelConfig, Slot};
use crate::error::{Error, Result};

pub(super) static GPT2: Family = Family {
    names: ["gpt2", "GPT2LMHeadModel"],
    like: None,
    fields: &[
        HIDDEN_SIZE.or(Missing::Size(768)).named("n_embd"),
        HEADS.or(Missing::Size(12)).named("n_head"),
        LAYERS.or(Missing::Size(12)).named("n_layer"),
        POSITIONS.or(Missing::Size(1024)).named("n_positions"),
        CONTEXT.or_nothing(),
        INTERMEDIATE_SIZE.or_nothing().named("n_inner").with_nulls(),
        VOCAB_SIZE.or(Missing::Size(50_257)),
        NORM_EPS.or(Missing::Real(1e-5)).named("layer_norm_epsilon"),
        TIED.or(Missing::Flag(true)),
        HIDDEN_ACT.or(Missing::Activation("gelu_new")).named("activation_function"),
        INITIALIZER_RANGE.or(Missing::Real(0.02)),
        SOFT_CAP.or_nothing(),
        EMBEDDING_DROPOUT.or(Missing::Real(0.1)),
        ATTENTION_DROPOUT.or(Missing::Real(0.1)).named("attn_pdrop"),
        RESIDUAL_DROPOUT.or(Missing::Real(0.1)),
    ],
    refused: &[],
    gguf: Some(Gguf {
        architecture: "gpt2",
        modules: &[&[
            ("wte", "token_embd"),
            ("wpe", "position_embd"),
            ("ln_f", "output_norm"),
            ("lm_head", "output"),
            ("ln_1", "attn_norm"),
            ("attn.c_attn", "attn_qkv"),
            ("attn.c_proj", "attn_output"),
            ("ln_2", "ffn_norm"),
            ("mlp.c_fc", "ffn_up"),
            ("mlp.c_proj", "ffn_down"),
        ]],
        changes: &[
            ("attn.c_attn", Change::Transposed),
            ("attn.c_proj", Change::Transposed),
            ("mlp.c_fc", Change::Transposed),
            ("mlp.c_proj", Change::Transposed),
        ],
        expected: &[("activation_function", GELU), UNCAPPED],
    }),
    describe,
};

/// The name in old files. Newer ones have another.
static CONTEXT: Slot = Slot::number(
    "n_ctx",
    Kind::Custom { read: read_context, write: |_, _| vec![] },
    "Old configs of GPT-2 have it; it must be `n_positions`.",
);

fn read_context(field: &Field, fields: &mut Fields<'_>, config: &mut ModelConfig) -> Result<()> {
    let positions = config.max_position_embeddings;
    match fields.text(field.name).filter(|text| *text != positions.to_string()) {
        None => Ok(()),
        Some(text) => Err(Error::config(format!(
            "config field n_ctx is {text:.200}; it must be n_positions, {positions}"
        ))),
    }
}

/// Where the tensors of the whole checkpoint begin. Files of the model without its head lack it.
const PREFIX: &str = "transformer";

fn describe(model: Describe) -> Architecture {
    decoder(model, layer)
}

/// Learned positions, and layers of which each is described by its block's name and its index.
pub(super) fn decoder(
    mut model: Describe,
    layer: fn(&mut Describe, String, usize) -> Layer,
) -> Architecture {
    let config = model.config;
    let (hidden, positions) = (config.hidden_size, config.max_position_embeddings);
    let name = |module: &str| format!("{PREFIX}.{module}");
    let embedding = model.matrix(hidden, &[(name("wte"), config.vocab_size)]);
    let position_embedding = Some(model.matrix(hidden, &[(name("wpe"), positions)]));
    let layers = (0..config.num_hidden_layers)
        .map(|index| layer(&mut model, name(&format!("h.{index}")), index))
        .collect();
    let final_norm = model.layer_norm(&name("ln_f"), hidden);
    Architecture {
        position_embedding,
        ..model.architecture(embedding, layers, final_norm, "lm_head")
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
    let outputs =
        [layer.attention.as_ref().map(|it| it.output), layer.mlp.as_ref().map(|it| it.down)];
    for product in outputs.into_iter().flatten() {
        model.weights[product.weight].params[0].init = Init::Normal(small);
    }
    layer
}
