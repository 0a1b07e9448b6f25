//! Models whose layers say what they are: no published family, but a config to try architectures with. transformers
//! computes them by the `modeling_tinyloom.py` that `save` writes beside the config.

use super::describe::Describe;
use super::{
    Architecture, AttentionBlock, BlockNorms, Family, FeedForward, Layer, Norm, NormKind, Rope,
    RopeId,
};
use crate::config::slots::*;
use crate::config::{
    Field, Fields, Kind, LAYERS_LIST, Missing, ModelConfig, NOTHING, Neutral, Refusal, Slot, refuse,
};
use crate::error::Result;
use serde_json::{Value, json};

/// Fields after `layers` belong to each layer. Where a layer leaves one out, the model's stands for it.
pub(super) static TINYLOOM: Family = Family {
    names: ["tinyloom", "TinyloomForCausalLM"],
    like: None,
    fields: &[
        VOCAB_SIZE.or(Missing::Size(32_000)),
        HIDDEN_SIZE.or(Missing::Size(512)),
        LAYERS.or(Missing::Size(8)),
        POSITIONS.or(Missing::Size(2048)),
        TIED.or(Missing::Flag(true)),
        INITIALIZER_RANGE.or(Missing::Real(0.02)),
        LEARNED_POSITIONS.or(Missing::Flag(false)),
        FINAL_NORM.or(Missing::Flag(true)),
        LOGIT_SOFT_CAP.or_nothing(),
        AUTO_MAP.or_nothing(),
        LAYERS_LIST.or_nothing(),
        ATTENTION.or(Missing::Flag(true)),
        HEADS.or(Missing::Size(8)),
        EACH_KEY_VALUE_HEADS.or_nothing(),
        EACH_HEAD_DIM.or_nothing(),
        THETA.or(Missing::Real(1e4)),
        SHARE.or(Missing::Real(1.0)),
        WINDOW.or_nothing().with_nulls(),
        QK_NORM.or(Missing::Flag(false)),
        SOFT_CAP.or_nothing().with_nulls(),
        ATTENTION_BIAS.or(Missing::Flag(false)),
        MLP.or(Missing::Flag(true)),
        INTERMEDIATE_SIZE.or_nothing(),
        GATED.or(Missing::Flag(true)),
        HIDDEN_ACT.or(Missing::Activation("silu")),
        MLP_BIAS.or(Missing::Flag(false)),
        PARALLEL.or(Missing::Flag(false)),
        NORM.or_nothing(),
        NORM_TYPE.or_nothing(),
        NORM_EPS.or(Missing::Real(1e-5)).named("norm_eps"),
    ],
    refused: &REFUSED,
    gguf: None,
    describe,
};

const ZERO: Neutral = |value| value.as_f64() == Some(0.0);
const NO_SCALING: &str =
    "null: rope_theta of a layer is all that a tinyloom model says of its RoPE";
const NO_TYPES: &str = "absent: sliding_window in layers says which layers have a window";
const NO_DROPOUT: &str = "0: give dropout to the trainer";
const REFUSED: [Refusal; 11] = [
    ("rope_scaling", NOTHING, NO_SCALING),
    ("rope_parameters", NOTHING, NO_SCALING),
    ("rope_local_base_freq", NOTHING, "absent: rope_theta in layers says which base a layer has"),
    ("layer_types", NOTHING, NO_TYPES),
    ("sliding_window_pattern", NOTHING, NO_TYPES),
    ("query_pre_attn_scalar", NOTHING, "absent: scores are divided by √head_dim"),
    ("attention_dropout", ZERO, NO_DROPOUT),
    ("hidden_dropout", ZERO, NO_DROPOUT),
    ("embd_pdrop", ZERO, NO_DROPOUT),
    ("resid_pdrop", ZERO, NO_DROPOUT),
    ("use_parallel_residual", NOTHING, "absent: parallel says that both blocks read one input"),
];

/// Where transformers finds the classes. Whatever a file says, a save writes those of its own.
static AUTO_MAP: Slot = Slot::number(
    "auto_map",
    Kind::Custom {
        read: |field, fields, _| {
            fields.drop(field.name);
            Ok(())
        },
        write: |field, _| {
            let of = |class: &str| format!("modeling_tinyloom.Tinyloom{class}");
            let classes =
                json!({"AutoConfig": of("Config"), "AutoModelForCausalLM": of("ForCausalLM")});
            vec![(field.name, classes)]
        },
    },
    "Written by `save()`, which adds the file for transformers to models of `model_type: \"tinyloom\"`.",
)
.typed("Record<string, string>");

/// A row for each position, added to the embedding.
pub static LEARNED_POSITIONS: Slot = Slot::own_flag(
    "learned_positions",
    "Each position of a tinyloom model has a learned row, added to the embedding; its layers have no RoPE then unless \
     they give `rope_theta`. Default false.",
);
static FINAL_NORM: Slot = Slot::own_flag(
    "final_norm",
    "A tinyloom model has a norm before its head, of the model's `norm_type`. Default true.",
);
static ATTENTION: Slot =
    Slot::own_flag("attention", "A layer of a tinyloom model has attention. Default true.");
static MLP: Slot = Slot::number(
    "mlp",
    Kind::Own(read_mlp),
    "A layer of a tinyloom model has a feed-forward block. Default true.",
)
.typed("boolean");
static PARALLEL: Slot = Slot::own_flag(
    "parallel",
    "Both blocks of a layer of a tinyloom model read the layer's input. Default false.",
);
static GATED: Slot = Slot::own_flag(
    "gated",
    "The feed-forward block of a tinyloom model is `down(act(gate) · up)`, else `down(act(up))`. Default true.",
);
static QK_NORM: Slot = Slot::own_flag(
    "qk_norm",
    "Queries and keys of each head have an RMS norm (tinyloom models). Default false.",
);
const NORMS: [&str; 5] = ["before", "after", "both", "sum", "none"];
static NORM: Slot = Slot::number(
    "norm",
    Kind::Own(read_norm),
    "Where blocks of a tinyloom model have norms: of what a block reads (`\"before\"`), of what it adds (`\"after\"`), \
     `\"both\"`, of the residual stream that it has added to (`\"sum\"`), or `\"none\"`. Default `\"before\"`.",
)
.typed(r#""before" | "after" | "both" | "sum" | "none""#);
const NORM_TYPES: [&str; 2] = ["rms", "layer"];
static NORM_TYPE: Slot = Slot::number(
    "norm_type",
    Kind::Own(|field, fields, _| one_of(field, fields, &NORM_TYPES)),
    "RMSNorm, or LayerNorm with a bias (tinyloom models). Default `\"rms\"`.",
)
.typed(r#""rms" | "layer""#);
/// The base, or null for none: written too, as what stands for a missing field may be a number.
static THETA: Slot =
    Slot::number(ROPE.name, Kind::Custom { read: read_theta, write: written_as_given }, ROPE.about);
/// That it is an even number of a head's elements is for [`ModelConfig`]'s own check.
static SHARE: Slot = Slot::number(
    ROTARY_SHARE.name,
    Kind::Custom { read: read_share, write: written_as_given },
    ROTARY_SHARE.about,
);
/// Written as it was given: what stands for a missing one follows from a layer's heads.
static EACH_KEY_VALUE_HEADS: Slot = Slot::number(
    KEY_VALUE_HEADS.name,
    Kind::Custom {
        read: |field, fields, config| given(field, &KEY_VALUE_HEADS, fields, config),
        write: written_as_given,
    },
    KEY_VALUE_HEADS.about,
)
.also(KEY_VALUE_HEADS.aliases);
static EACH_HEAD_DIM: Slot = Slot::number(
    HEAD_DIM.name,
    Kind::Custom {
        read: |field, fields, config| given(field, &HEAD_DIM, fields, config),
        write: written_as_given,
    },
    HEAD_DIM.about,
);

fn read_theta(field: &Field, fields: &mut Fields<'_>, config: &mut ModelConfig) -> Result<()> {
    let missing = if config.own_flag(&LEARNED_POSITIONS) { None } else { field.missing.real() };
    let theta = json!(fields.real_or(field.name, missing)?);
    let good = |x: f64| x > 0.0 && (x as f32).is_normal();
    if theta.as_f64().is_some_and(|theta| !good(theta)) {
        return Err(refuse(
            field.name,
            &theta,
            "null, for none, or a number from 1.2e-38 to 3.4e38",
        ));
    }
    config.own.insert(field.name, theta);
    Ok(())
}

fn read_share(field: &Field, fields: &mut Fields<'_>, config: &mut ModelConfig) -> Result<()> {
    let given = fields.take(field.name)?.unwrap_or(json!(1.0));
    let share = given.as_f64().ok_or_else(|| refuse(field.name, &given, "a number up to 1"))?;
    // Without attention there is no head to check.
    config.partial_rotary_factor = if config.own_flag(&ATTENTION) { share } else { 1.0 };
    config.own.insert(field.name, given);
    Ok(())
}

fn read_mlp(field: &Field, fields: &mut Fields<'_>, config: &ModelConfig) -> Result<Value> {
    let mlp = fields.flag(field.name, true)?;
    if mlp || config.own_flag(&ATTENTION) {
        return Ok(Value::Bool(mlp));
    }
    Err(refuse(field.name, &Value::Bool(mlp), "true where attention is false: a layer has a block"))
}

fn read_norm(field: &Field, fields: &mut Fields<'_>, config: &ModelConfig) -> Result<Value> {
    let norm = one_of(field, fields, &NORMS)?;
    let parallel = [&PARALLEL, &ATTENTION, &MLP].map(|slot| config.own_flag(slot)) == [true; 3];
    if norm == "sum" && parallel {
        let allowed = "\"before\", \"after\", \"both\" or \"none\" where parallel is true: its blocks share one sum";
        return Err(refuse(field.name, &norm, allowed));
    }
    Ok(norm)
}

/// A field of a slot, kept as it was given too. Without attention a layer has no heads to check.
fn given(
    field: &Field,
    slot: &'static Slot,
    fields: &mut Fields<'_>,
    config: &mut ModelConfig,
) -> Result<()> {
    if !config.own_flag(&ATTENTION) {
        fields.drop(field.name);
        (config.num_key_value_heads, config.head_dim) = (config.num_attention_heads, 4);
        return Ok(());
    }
    let value = fields.peek(field.name)?;
    Field { slot, ..*field }.read(fields, config)?;
    config.own.insert(field.name, value);
    Ok(())
}

fn written_as_given(field: &Field, config: &ModelConfig) -> Vec<(&'static str, Value)> {
    vec![(field.name, config.own.get(field.name).cloned().unwrap_or_default())]
}

/// One of these words, the first for a missing field.
fn one_of(field: &Field, fields: &mut Fields<'_>, words: &[&str]) -> Result<Value> {
    let value = fields.take(field.name)?.unwrap_or_else(|| json!(words[0]));
    if words.iter().any(|word| value == *word) {
        return Ok(value);
    }
    let quoted: Vec<_> = words.iter().map(|word| format!("\"{word}\"")).collect();
    Err(refuse(field.name, &value, &format!("one of {}", quoted.join(", "))))
}

fn describe(mut model: Describe) -> Architecture {
    let config = model.config;
    let hidden = config.hidden_size;
    let embedding = model.matrix(hidden, &[("model.embed_tokens".into(), config.vocab_size)]);
    let position_embedding = config.own_flag(&LEARNED_POSITIONS).then(|| {
        model.matrix(hidden, &[("model.embed_positions".into(), config.max_position_embeddings)])
    });
    let mut ropes = vec![];
    let mut layers = vec![];
    for index in 0..config.num_hidden_layers {
        model.config = config.layer(index);
        layers.push(layer(&mut model, &format!("model.layers.{index}"), &mut ropes));
    }
    model.config = config;
    set_norms(&mut model);
    let final_norm = config.own_flag(&FINAL_NORM).then(|| model.norm("model.norm", hidden));
    Architecture {
        ropes,
        position_embedding,
        logit_soft_cap: config.final_logit_softcapping,
        ..model.architecture(embedding, layers, final_norm, "lm_head")
    }
}

/// Sets the kind of the next norms, as the config says.
fn set_norms(model: &mut Describe) {
    let layer = model.config.own.get(NORM_TYPE.name).is_some_and(|name| name == NORM_TYPES[1]);
    model.norms = if layer { NormKind::Layer } else { NormKind::Rms };
    model.epsilon = model.config.rms_norm_eps;
}

fn layer(model: &mut Describe, name: &str, ropes: &mut Vec<Rope>) -> Layer {
    set_norms(model);
    let config = model.config;
    Layer {
        attention: config.own_flag(&ATTENTION).then(|| attention(model, name, ropes)),
        parallel: config.own_flag(&PARALLEL),
        mlp: config.own_flag(&MLP).then(|| feed_forward(model, name)),
    }
}

fn attention(model: &mut Describe, name: &str, ropes: &mut Vec<Rope>) -> AttentionBlock {
    let (config, hidden) = (model.config, model.config.hidden_size);
    let mut attention = model.attention(0);
    let theta = config.own.get(ROPE.name).and_then(Value::as_f64);
    attention.rope = theta.map(|theta| rope(ropes, Rope::plain(config.rotary_dims(), theta)));
    let (query, key_value) = (attention.width(), attention.kv_heads * attention.head_dim);
    let of = |module: &str| format!("{name}.self_attn.{module}_proj");
    let biased = config.own_flag(&ATTENTION_BIAS);
    let before = norm(model, name, "attention_norm", &["before", "both"]);
    let qkv = [(of("q"), query), (of("k"), key_value), (of("v"), key_value)];
    let qkv = model.linear(hidden, &qkv, biased);
    let head_norms = config.own_flag(&QK_NORM).then(|| {
        let norms = std::mem::replace(&mut model.norms, NormKind::Rms);
        let of_heads = model.head_norms(&format!("{name}.self_attn"), attention.head_dim);
        model.norms = norms;
        of_heads
    });
    let output = model.linear(query, &[(of("o"), hidden)], biased);
    let norms = behind(model, name, before, ["attention_post_norm", "attention_sum_norm"]);
    AttentionBlock { norms, qkv, head_norms, attention, output }
}

/// The table of these angles: layers that turn alike share one.
fn rope(ropes: &mut Vec<Rope>, rope: Rope) -> RopeId {
    ropes.iter().position(|known| *known == rope).unwrap_or_else(|| {
        ropes.push(rope);
        ropes.len() - 1
    })
}

fn feed_forward(model: &mut Describe, name: &str) -> FeedForward {
    let config = model.config;
    let (hidden, feed, gated) =
        (config.hidden_size, config.intermediate_size, config.own_flag(&GATED));
    let of = |module: &str| (format!("{name}.mlp.{module}_proj"), feed);
    let biased = config.own_flag(&MLP_BIAS);
    let before = norm(model, name, "mlp_norm", &["before", "both"]);
    let up = [of("gate"), of("up")];
    let gate_up = model.linear(hidden, if gated { &up } else { &up[1..] }, biased);
    let down = model.linear(feed, &[(format!("{name}.mlp.down_proj"), hidden)], biased);
    let norms = behind(model, name, before, ["mlp_post_norm", "mlp_sum_norm"]);
    FeedForward { norms, gate_up, gated, feed, activation: config.hidden_act, down }
}

/// A norm of the layer, if its norms are in one of these places.
fn norm(model: &mut Describe, name: &str, module: &str, places: &[&str]) -> Option<Norm> {
    let place = model.config.own.get(NORM.name).and_then(Value::as_str)?;
    let hidden = model.config.hidden_size;
    places.contains(&place).then(|| model.norm(&format!("{name}.{module}"), hidden))
}

/// The norms of a block. `post` and `sum` name the modules of the norms after it.
fn behind(
    model: &mut Describe,
    name: &str,
    before: Option<Norm>,
    [post, sum]: [&str; 2],
) -> BlockNorms {
    let behind = norm(model, name, post, &["after", "both"]);
    BlockNorms { before, behind, of_sum: norm(model, name, sum, &["sum"]) }
}

#[cfg(test)]
mod tests;
