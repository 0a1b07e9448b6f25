//! The fields that families share.

use super::field::{Field, Kind, Missing, Slot, Written};
use super::fields::{Fields, refuse, size};
use super::rope;
use super::{Activation, LayerType, MAX_HEAD_DIM, ModelConfig};
use crate::error::{Error, Result};
use serde_json::{Value, json};

/// The slots that a misspelt name may stand for in any family.
pub static SHARED: [&Slot; 20] = [
    &VOCAB_SIZE,
    &HIDDEN_SIZE,
    &INTERMEDIATE_SIZE,
    &LAYERS,
    &HEADS,
    &KEY_VALUE_HEADS,
    &HEAD_DIM,
    &POSITIONS,
    &NORM_EPS,
    &ROPE,
    &TIED,
    &HIDDEN_ACT,
    &INITIALIZER_RANGE,
    &LOCAL_THETA,
    &WINDOW,
    &WINDOW_PATTERN,
    &LAYER_TYPES,
    &SOFT_CAP,
    &LOGIT_SOFT_CAP,
    &QUERY_SCALE,
];

pub static VOCAB_SIZE: Slot =
    Slot::number("vocab_size", Kind::Size(1 << 24, |c| &mut c.vocab_size), "")
        .also(&["n_vocab", "vocabulary_size"]);
pub static HIDDEN_SIZE: Slot =
    Slot::number("hidden_size", Kind::Size(1 << 20, |c| &mut c.hidden_size), "").also(&[
        "d_model",
        "n_embd",
        "n_embed",
        "embed_dim",
        "dim",
        "model_dim",
    ]);
/// Written as null, where a family does that, at four times the hidden size.
pub static INTERMEDIATE_SIZE: Slot = Slot::number(
    "intermediate_size",
    Kind::Custom { read: read_intermediate_size, write: write_intermediate_size },
    "Width of the feed-forward block; null in GPT-2 and GPT-Neo: 4 · `hidden_size`.",
)
.also(&["d_ff", "n_inner", "ffn_dim", "hidden_dim", "ffn_hidden_size"]);
pub static LAYERS: Slot =
    Slot::number("num_hidden_layers", Kind::Size(4096, |c| &mut c.num_hidden_layers), "").also(&[
        "num_layers",
        "n_layer",
        "n_layers",
        "layers",
    ]);
pub static HEADS: Slot =
    Slot::number("num_attention_heads", Kind::Size(1 << 16, |c| &mut c.num_attention_heads), "")
        .also(&["num_heads", "n_head", "n_heads", "heads"]);
pub static KEY_VALUE_HEADS: Slot = Slot::nullable(
    "num_key_value_heads",
    Kind::Custom {
        read: read_key_value_heads,
        write: |field, c| vec![(field.name, json!(c.num_key_value_heads))],
    },
    "Heads of keys and values; `num_attention_heads` must be a multiple.",
)
.also(&["num_kv_heads", "n_kv_heads", "n_kv_head", "kv_heads"]);
pub static HEAD_DIM: Slot = Slot::nullable(
    "head_dim",
    Kind::Custom {
        read: |field, fields, config| {
            let given = fields.take_set(field.name)?;
            config.head_dim = head_dim(config, given, field.missing.size())?;
            Ok(())
        },
        write: |field, c| vec![(field.name, json!(c.head_dim))],
    },
    "Width of a head, a multiple of 4 up to 256; default `hidden_size / num_attention_heads`.",
);
pub static POSITIONS: Slot = Slot::number(
    "max_position_embeddings",
    Kind::Size(1 << 24, |c| &mut c.max_position_embeddings),
    "",
)
.also(&["n_positions", "n_ctx", "max_seq_len", "block_size", "context_length"]);
pub static NORM_EPS: Slot = Slot::number("rms_norm_eps", Kind::Real(|c| &mut c.rms_norm_eps), "")
    .also(&["norm_eps", "layer_norm_eps", "layer_norm_epsilon", "rms_norm_epsilon"]);
pub static TIED: Slot =
    Slot::number("tie_word_embeddings", Kind::Flag(|c| &mut c.tie_word_embeddings), "")
        .typed("boolean");
/// Missing by the name that the family writes.
pub static HIDDEN_ACT: Slot = Slot::number(
    "hidden_act",
    Kind::Custom { read: read_hidden_act, write: write_hidden_act },
    "`\"swish\"` is `\"silu\"`, and `\"gelu_new\"` is `\"gelu_pytorch_tanh\"`.",
)
.typed(ACTIVATIONS)
.also(&["activation_function"]);
pub const ACTIVATIONS: &str = r#""silu" | "swish" | "gelu" | "gelu_pytorch_tanh" | "gelu_new""#;
pub static INITIALIZER_RANGE: Slot =
    Slot::number("initializer_range", Kind::Real(|c| &mut c.initializer_range), "");

/// The base of RoPE, and with it all that describes RoPE. A family without it has learned positions.
pub static ROPE: Slot = Slot::number(
    "rope_theta",
    Kind::Custom { read: rope::read, write: rope::write },
    "The base of RoPE; null in a layer of a tinyloom model: it has none.",
)
.typed("number | null");
/// The base in layers with a window, where these have their own.
pub static LOCAL_THETA: Slot = Slot::number(
    "rope_local_base_freq",
    Kind::With,
    "The base of RoPE in layers with a window (Gemma 3).",
);
/// Positions of the first training, where a family has them outside of what describes RoPE.
pub static ORIGINAL_POSITIONS: Slot = Slot::number(
    "original_max_position_embeddings",
    Kind::With,
    "Positions of the first training: longer texts turn by the long factors of `longrope`.",
);
/// The share of each head, where only a part is rotated.
pub static ROTARY_SHARE: Slot =
    Slot::number("partial_rotary_factor", Kind::With, "The share of each head that RoPE rotates.");
pub static ROPE_PARAMETERS: Slot = Slot::number("rope_parameters", Kind::With, "How RoPE reaches longer texts, as transformers 5 has it; its version 4 calls it `rope_scaling`.").typed("RopeParameters | null");
pub static ROPE_SCALING: Slot =
    Slot::number("rope_scaling", Kind::With, "The same, as transformers 4 has it.")
        .typed("RopeParameters | null");

pub static WINDOW: Slot = Slot::nullable(
    "sliding_window",
    Kind::OptionalSize(1 << 24, |c| &mut c.sliding_window),
    "A position sees at most this many of the latest positions, itself included. If all layers have a window \
     (Mistral), the cache of `generate` keeps only these and one chunk of the prompt, for a text of any length.",
);
/// [`WINDOW`] of a family that has it in some layers, and never null.
pub static LAYER_WINDOW: Slot = Slot::number(
    "sliding_window",
    Kind::Size(1 << 24, |c| c.sliding_window.get_or_insert_default()),
    WINDOW.about,
);
/// Missing by the period of the layers without a window.
pub static LAYER_TYPES: Slot = Slot::number("layer_types", Kind::Custom { read: read_layer_types, write: write_layer_types }, "Which layers of Gemma 2 and 3 have a window, one name for each layer. Default: all but every second layer, in \
            Gemma 3 all but every sixth.").typed(r#"("sliding_attention" | "full_attention")[] | null"#);
pub static WINDOW_PATTERN: Slot = Slot::number(
    "sliding_window_pattern",
    Kind::With,
    "One layer of Gemma 3 in this many has no window, where `layer_types` is left out. Default 6.",
);
/// Where it is missing by a number, transformers reads it too.
pub static SOFT_CAP: Slot = Slot::nullable(
    "attn_logit_softcapping",
    Kind::OptionalReal(|c| &mut c.attn_logit_softcapping),
    "Attention scores become `cap · tanh(score / cap)`. `save()` keeps this field, and notes in the saved config where \
     transformers' model ignores it; that of Gemma 2 reads it.",
);
pub static LOGIT_SOFT_CAP: Slot = Slot::nullable(
    "final_logit_softcapping",
    Kind::OptionalReal(|c| &mut c.final_logit_softcapping),
    "Logits become `cap · tanh(logit / cap)` (Gemma 2 and 3).",
);
pub static QUERY_SCALE: Slot = Slot::number(
    "query_pre_attn_scalar",
    Kind::Size(1 << 24, |c| c.query_pre_attn_scalar.get_or_insert_default()),
    "Attention scores are divided by its square root (Gemma 2 and 3); elsewhere by that of `head_dim`.",
);

pub static ATTENTION_BIAS: Slot = Slot::own_flag(
    "attention_bias",
    "Products around attention have biases (Llama, SmolLM3, OLMo 2, Granite, GPT-NeoX). Default false, in GPT-NeoX true.",
);
pub static MLP_BIAS: Slot = Slot::own_flag(
    "mlp_bias",
    "Products of the feed-forward block have biases (Llama, SmolLM3, Granite). Default false.",
);

pub static EMBEDDING_DROPOUT: Slot = Slot::number(
    "embd_pdrop",
    Kind::Rate(|c| &mut c.dropout.embedding),
    "The share of the elements of embeddings that training leaves out.",
);
pub static ATTENTION_DROPOUT: Slot = Slot::number(
    "attention_dropout",
    Kind::Rate(|c| &mut c.dropout.attention),
    "The share of the keys of each query that training leaves out.",
);
pub static RESIDUAL_DROPOUT: Slot = Slot::number(
    "resid_pdrop",
    Kind::Rate(|c| &mut c.dropout.residual),
    "The share of what each block adds that training leaves out.",
);

fn read_intermediate_size(
    field: &Field,
    fields: &mut Fields<'_>,
    config: &mut ModelConfig,
) -> Result<()> {
    let given = fields.optional_size(field.name, 1 << 22)?;
    config.intermediate_size = given.or(field.missing.size()).unwrap_or(4 * config.hidden_size);
    Ok(())
}

/// No number for what follows from the hidden size.
fn write_intermediate_size(field: &Field, config: &ModelConfig) -> Written {
    let feed = config.intermediate_size;
    let follows = field.nulls && feed == 4 * config.hidden_size;
    vec![(field.name, if follows { Value::Null } else { json!(feed) })]
}

fn read_key_value_heads(
    field: &Field,
    fields: &mut Fields<'_>,
    config: &mut ModelConfig,
) -> Result<()> {
    let heads = config.num_attention_heads;
    let missing = field.missing.size().unwrap_or(heads).min(heads);
    config.num_key_value_heads = fields.optional_size(field.name, heads)?.unwrap_or(missing);
    Ok(())
}

/// The given one, or the family's, or what the heads leave to each.
pub fn head_dim(
    config: &ModelConfig,
    given: Option<Value>,
    missing: Option<usize>,
) -> Result<usize> {
    let allowed = format!("a multiple of 4 up to {MAX_HEAD_DIM}");
    if let Some(value) = given {
        return size(HEAD_DIM.name, &value, MAX_HEAD_DIM)
            .ok()
            .filter(|n| n.is_multiple_of(4))
            .ok_or_else(|| refuse(HEAD_DIM.name, &value, &allowed));
    }
    if let Some(head_dim) = missing {
        return Ok(head_dim);
    }
    let (hidden, heads) = (config.hidden_size, config.num_attention_heads);
    let (of_hidden, of_heads) = (config.spelled(HIDDEN_SIZE.name), config.spelled(HEADS.name));
    if !hidden.is_multiple_of(heads) {
        return Err(Error::config(format!(
            "{of_hidden} ({hidden}) is not a multiple of {of_heads} ({heads}): change one of them{}",
            if config.family.has(&HEAD_DIM) { ", or give head_dim" } else { "" }
        )));
    }
    let head_dim = hidden / heads;
    if !head_dim.is_multiple_of(4) || head_dim > MAX_HEAD_DIM {
        return Err(Error::config(format!(
            "head_dim, taken as {of_hidden} / {of_heads} ({hidden} / {heads}), is {head_dim}; it must be {allowed} \
             (fields left out have transformers' defaults)"
        )));
    }
    Ok(head_dim)
}

/// The function that a field names.
pub fn activation(name: &str, value: &Value) -> Result<Activation> {
    let known = value.as_str().and_then(Activation::from_name);
    known.ok_or_else(|| refuse(name, value, "\"silu\", \"gelu\" or \"gelu_pytorch_tanh\""))
}

fn read_hidden_act(field: &Field, fields: &mut Fields<'_>, config: &mut ModelConfig) -> Result<()> {
    if let Some(value) = fields.take(field.name)? {
        config.hidden_act = activation(field.name, &value)?;
    } else if let Some(usual) = usual_act(field) {
        config.hidden_act = usual;
    }
    Ok(())
}

fn usual_act(field: &Field) -> Option<Activation> {
    let Missing::Activation(name) = field.missing else { return None };
    Activation::from_name(name)
}

fn write_hidden_act(field: &Field, config: &ModelConfig) -> Written {
    let name = match field.missing {
        Missing::Activation(name) if usual_act(field) == Some(config.hidden_act) => name,
        _ => config.hidden_act.name(),
    };
    vec![(field.name, json!(name))]
}

/// If no field lists the layers, all have a window but every n-th.
fn read_layer_types(
    field: &Field,
    fields: &mut Fields<'_>,
    config: &mut ModelConfig,
) -> Result<()> {
    let layers = config.num_hidden_layers;
    let Some(value) = fields.take_set(field.name)? else {
        let period = field.missing.size().unwrap_or(layers);
        let period = match config.family.find(&WINDOW_PATTERN) {
            Some(pattern) => fields.size(pattern.name, period, 4096)?,
            None => period,
        };
        let kind = |layer: usize| {
            if layer.is_multiple_of(period) { LayerType::Full } else { LayerType::Sliding }
        };
        config.layer_types = (1..=layers).map(kind).collect();
        return Ok(());
    };
    config.layer_types = LayerType::read(field.name, &value, layers)?;
    Ok(())
}

fn write_layer_types(field: &Field, config: &ModelConfig) -> Written {
    let names = config.layer_types.iter().map(|kind| json!(kind.name())).collect();
    vec![(field.name, Value::Array(names))]
}
