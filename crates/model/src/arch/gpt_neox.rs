//! GPT-NeoX (Black et al., arXiv:2204.06745) and Pythia (Biderman et al., arXiv:2304.01373): both blocks of a layer
//! read one input, the beginning of each head turns, and queries, keys and values are stored head by head.

use super::describe::{Describe, Modules};
use super::gguf::{Change, GELU, Gguf, UNCAPPED};
use super::{Architecture, Attention, Family, Layer, Stored};
use crate::config::slots::*;
use crate::config::{Field, Fields, Kind, Missing, ModelConfig, Slot};
use crate::error::Result;
use serde_json::json;

pub(super) static GPT_NEOX: Family = Family {
    names: ["gpt_neox", "GPTNeoXForCausalLM"],
    like: None,
    fields: &[
        HIDDEN_SIZE.or(Missing::Size(6144)),
        HEADS.or(Missing::Size(64)),
        LAYERS.or(Missing::Size(44)),
        POSITIONS.or(Missing::Size(2048)),
        ROPE.or(Missing::Real(1e4)).named("rotary_emb_base"),
        ROTARY_SHARE.or(Missing::Real(0.25)).named("rotary_pct"),
        ROPE_PARAMETERS.or_nothing(),
        ROPE_SCALING.or_nothing(),
        INTERMEDIATE_SIZE.or(Missing::Size(24_576)),
        VOCAB_SIZE.or(Missing::Size(50_432)),
        NORM_EPS.or(Missing::Real(1e-5)).named("layer_norm_eps"),
        TIED.or(Missing::Flag(false)),
        HIDDEN_ACT.or(Missing::Activation("gelu")),
        INITIALIZER_RANGE.or(Missing::Real(0.02)),
        SOFT_CAP.or_nothing(),
        ATTENTION_BIAS.or(Missing::Flag(true)),
        PARALLEL.or(Missing::Flag(true)),
        DROPOUT.or(Missing::Real(0.0)),
        ATTENTION_DROPOUT.or(Missing::Real(0.0)),
    ],
    refused: &[],
    gguf: Some(Gguf {
        architecture: "gptneox",
        modules: &[&[
            ("embed_in", "token_embd"),
            ("final_layer_norm", "output_norm"),
            ("embed_out", "output"),
            ("input_layernorm", "attn_norm"),
            ("attention.query_key_value", "attn_qkv"),
            ("attention.dense", "attn_output"),
            ("post_attention_layernorm", "ffn_norm"),
            ("mlp.dense_h_to_4h", "ffn_up"),
            ("mlp.dense_4h_to_h", "ffn_down"),
        ]],
        changes: &[("attention.query_key_value", Change::Stacked)],
        expected: &[
            ("hidden_act", GELU),
            UNCAPPED,
            (ATTENTION_BIAS.name, &["true"]),
            (TIED.name, &["false"]),
        ],
    }),
    describe,
};

static PARALLEL: Slot = Slot::own_flag(
    "use_parallel_residual",
    "Both blocks of a layer of GPT-NeoX read the layer's input. Default true.",
);
/// Its one rate is for embeddings too.
static DROPOUT: Slot = Slot::number(
    "hidden_dropout",
    Kind::Custom {
        read: read_dropout,
        write: |field, config| vec![(field.name, json!(config.dropout.residual))],
    },
    "The share of embeddings, and of what each block adds, that training of GPT-NeoX leaves out.",
);

fn read_dropout(field: &Field, fields: &mut Fields<'_>, config: &mut ModelConfig) -> Result<()> {
    Field { slot: &RESIDUAL_DROPOUT, ..*field }.read(fields, config)?;
    config.dropout.embedding = config.dropout.residual;
    Ok(())
}

fn describe(mut model: Describe) -> Architecture {
    let config = model.config;
    let hidden = config.hidden_size;
    let embedding = model.matrix(hidden, &[("gpt_neox.embed_in".into(), config.vocab_size)]);
    let layers = (0..config.num_hidden_layers).map(|index| layer(&mut model, index)).collect();
    let final_norm = model.layer_norm("gpt_neox.final_layer_norm", hidden);
    Architecture {
        ropes: vec![model.rope()],
        ..model.architecture(embedding, layers, final_norm, "embed_out")
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
            biased: [config.own_flag(&ATTENTION_BIAS); 2],
            parallel: config.own_flag(&PARALLEL),
        },
    )
}
