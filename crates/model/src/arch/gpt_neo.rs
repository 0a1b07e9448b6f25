//! GPT-Neo (Black et al., "GPT-Neo", 2021; TinyStories, Eldan and Li, arXiv:2305.07759): GPT-2 with matrices stored
//! `[out, in]`, without biases of queries, keys and values, with windows in some layers, and scores as they are.

use super::describe::{Describe, Modules};
use super::gpt2::decoder;
use super::{Attention, Family, Layer, Stored};
use crate::config::slots::*;
use crate::config::{Field, Fields, Kind, LayerType, Missing, ModelConfig, Slot, Written, refuse};
use crate::error::Result;
use serde_json::{Value, json};

pub(super) static GPT_NEO: Family = Family {
    names: ["gpt_neo", "GPTNeoForCausalLM"],
    like: None,
    fields: &[
        HIDDEN_SIZE.or(Missing::Size(2048)),
        HEADS.or(Missing::Size(16)).named("num_heads"),
        LAYERS.or(Missing::Size(24)).named("num_layers"),
        POSITIONS.or(Missing::Size(2048)),
        INTERMEDIATE_SIZE.or_nothing().with_nulls(),
        VOCAB_SIZE.or(Missing::Size(50_257)),
        NORM_EPS.or(Missing::Real(1e-5)).named("layer_norm_epsilon"),
        TIED.or(Missing::Flag(true)),
        HIDDEN_ACT.or(Missing::Activation("gelu_new")).named("activation_function"),
        INITIALIZER_RANGE.or(Missing::Real(0.02)),
        LAYER_WINDOW.or(Missing::Size(256)).named("window_size"),
        ATTENTION_TYPES.or_nothing(),
        ATTENTION_LAYERS.or_nothing(),
        SOFT_CAP.or_nothing(),
        EMBEDDING_DROPOUT.or(Missing::Real(0.0)).named("embed_dropout"),
        ATTENTION_DROPOUT.or(Missing::Real(0.0)),
        RESIDUAL_DROPOUT.or(Missing::Real(0.0)).named("resid_dropout"),
    ],
    refused: &[],
    gguf: None,
    describe: |model| decoder(model, layer),
};

/// What the queries of each layer see: names with how often they follow. Read and written with the list.
static ATTENTION_TYPES: Slot = Slot::number("attention_types", Kind::With, "What the layers of GPT-Neo see: kinds, and how often they follow. Default: global and local in turns.").typed(r#"[("global" | "local")[], number][] | null"#);
static ATTENTION_LAYERS: Slot = Slot::number(
    "attention_layers",
    Kind::Custom { read: read_layers, write: write_layers },
    "The same, one kind for each layer.",
)
.typed(r#"("global" | "local")[] | null"#);
/// What they call layers without a window and those with it.
const NAMES: [&str; 2] = ["global", "local"];

/// Both fields, which must agree; without them every second layer has a window.
fn read_layers(_: &Field, fields: &mut Fields<'_>, config: &mut ModelConfig) -> Result<()> {
    let layers = config.num_hidden_layers;
    let mut found: Option<Vec<LayerType>> = None;
    for name in [ATTENTION_TYPES.name, ATTENTION_LAYERS.name] {
        let Some(value) = fields.take_set(name)? else { continue };
        let mut kinds = vec![];
        let known = if name == ATTENTION_TYPES.name {
            list(&value).iter().all(|part| repeated(part, layers, &mut kinds))
        } else {
            named(&value, &mut kinds)
        };
        if !known || kinds.len() != layers {
            return Err(refuse(name, &value, "\"global\" or \"local\" for each layer"));
        }
        if found.as_ref().is_some_and(|other| *other != kinds) {
            return Err(refuse(name, &value, "the same as attention_types"));
        }
        found = Some(kinds);
    }
    config.layer_types = found.unwrap_or_else(|| {
        let kind = |layer: usize| LayerType::ALL[layer % 2];
        (0..layers).map(kind).collect()
    });
    Ok(())
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Adds the kinds that a list names; whether it names no others.
fn named(value: &Value, kinds: &mut Vec<LayerType>) -> bool {
    for name in list(value) {
        let Some(kind) = NAMES.iter().position(|known| name == known) else { return false };
        kinds.push(LayerType::ALL[kind]);
    }
    true
}

/// Adds the kinds of a list as often as its count says, unless those are more than `most`. Whether all are known.
fn repeated(part: &Value, most: usize, kinds: &mut Vec<LayerType>) -> bool {
    let [names, count] = list(part) else { return false };
    let count = count.as_u64().unwrap_or(u64::MAX);
    // Nothing may follow itself for ever.
    if list(names).is_empty() || count > most as u64 {
        return false;
    }
    (0..count).all(|_| kinds.len() <= most && named(names, kinds))
}

fn write_layers(_: &Field, config: &ModelConfig) -> Written {
    let kinds = &config.layer_types;
    let name = |kind: &LayerType| json!(NAMES[usize::from(*kind == LayerType::Sliding)]);
    let names: Vec<Value> = kinds.iter().map(name).collect();
    let count = kinds.len();
    let repeats = |period: &usize| {
        count.is_multiple_of(*period) && kinds[*period..] == kinds[..count - *period]
    };
    let period = (1..=count).find(repeats).unwrap_or(1);
    let pattern = vec![Value::Array(names[..period].to_vec()), json!(count / period)];
    let pattern = Value::Array(vec![Value::Array(pattern)]);
    vec![(ATTENTION_TYPES.name, pattern), (ATTENTION_LAYERS.name, Value::Array(names))]
}

fn layer(model: &mut Describe, block: String, index: usize) -> Layer {
    let attention = Attention { scale: Some(1.0), ..model.attention(index) };
    let width = attention.width();
    model.plain_layer(
        attention,
        &Modules {
            block,
            qkv: &[
                ("attn.attention.q_proj", width),
                ("attn.attention.k_proj", width),
                ("attn.attention.v_proj", width),
            ],
            output: "attn.attention.out_proj",
            norms: ["ln_1", "ln_2"],
            up: "mlp.c_fc",
            down: "mlp.c_proj",
            stored: [Stored::Rows; 2],
            biased: [false, true],
            parallel: false,
        },
    )
}
