//! Qwen2 and Qwen2.5 (arXiv:2407.10671, arXiv:2412.15115): Llama with biases of queries, keys and values.
//! Qwen3 (Yang et al., arXiv:2505.09388): Llama with a norm of each head's queries and keys.

use super::Family;
use super::gguf::{DECODER, Gguf, HEAD_NORMS, SILU, UNCAPPED};
use super::llama::{Differences, HeadsNormed, LLAMA, decoder};
use crate::config::slots::*;
use crate::config::{
    Field, Fields, Kind, LayerType, Missing, ModelConfig, NO_BIASES, OFF, Refusal, Slot, refuse,
    size,
};
use crate::error::Result;
use serde_json::Value;

pub(super) static QWEN2: Family = Family {
    names: ["qwen2", "Qwen2ForCausalLM"],
    like: Some(&LLAMA),
    fields: &[
        POSITIONS.or(Missing::Size(32_768)),
        KEY_VALUE_HEADS.or(Missing::Size(32)),
        INTERMEDIATE_SIZE.or(Missing::Size(22_016)),
        VOCAB_SIZE.or(Missing::Size(151_936)),
        USES_WINDOW.or_nothing(),
    ],
    refused: &NO_BIASES,
    gguf: Some(Gguf {
        architecture: "qwen2",
        modules: &[DECODER],
        changes: &[],
        expected: &[SILU, UNCAPPED, UNWINDOWED],
    }),
    describe: |model| decoder(model, Differences { qkv_bias: true, ..Differences::NONE }),
};

pub(super) static QWEN3: Family = Family {
    names: ["qwen3", "Qwen3ForCausalLM"],
    like: Some(&QWEN2),
    fields: &[HEAD_DIM.or(Missing::Size(128))],
    refused: &NO_BIASES,
    gguf: Some(Gguf {
        architecture: "qwen3",
        modules: &[DECODER, HEAD_NORMS],
        changes: &[],
        expected: &[SILU, UNCAPPED, UNWINDOWED],
    }),
    describe: |model| {
        decoder(model, Differences { head_norms: HeadsNormed::Each, ..Differences::NONE })
    },
};

/// llama.cpp has no windows in these families.
const UNWINDOWED: (&str, &[&str]) = (USES_WINDOW.name, &["false", "null"]);

/// `sliding_window` counts only beside this field, and then for layers from `max_window_layers` on, or for those that
/// `layer_types` names. All four stay in the config as they are.
static USES_WINDOW: Slot = Slot::number("use_sliding_window", Kind::Custom { read: read_windows, write: |_, _| vec![] }, "Whether layers of Qwen2 and Qwen3 from `max_window_layers` on have the window `sliding_window`. Default false.").typed("boolean");

fn read_windows(field: &Field, fields: &mut Fields<'_>, config: &mut ModelConfig) -> Result<()> {
    let layers = config.num_hidden_layers;
    let used = fields.peek(field.name)?;
    let on = used == true;
    if !on && used != false && !used.is_null() {
        return Err(refuse(field.name, &used, "true or false"));
    }
    let [window, first, types] =
        [WINDOW.name, "max_window_layers", LAYER_TYPES.name].map(|name| fields.peek(name));
    let (window, first, types) = (window?, first?, types?);
    let first = if first.is_null() { 28 } else { size_or_zero("max_window_layers", &first)? };
    let kind = |layer: usize| if layer < first { LayerType::Full } else { LayerType::Sliding };
    let mut kinds: Vec<_> = (0..layers).map(kind).collect();
    if !types.is_null() {
        kinds = LayerType::read(LAYER_TYPES.name, &types, layers)?;
    }
    let windowed = kinds.contains(&LayerType::Sliding);
    if !on || window.is_null() || !windowed {
        if !types.is_null() && windowed {
            let allowed = "all \"full_attention\" without use_sliding_window and sliding_window";
            return Err(refuse(LAYER_TYPES.name, &types, allowed));
        }
        return Ok(());
    }
    config.sliding_window = Some(size(WINDOW.name, &window, 1 << 24)?);
    config.layer_types = kinds;
    Ok(())
}

/// A number of layers, which may be none.
fn size_or_zero(name: &str, value: &Value) -> Result<usize> {
    if value == 0 { Ok(0) } else { size(name, value, 1 << 24) }
}

/// A window counts only beside the first field, and then for some of the layers.
pub(super) const NO_WINDOWS: [Refusal; 2] = [
    ("use_sliding_window", OFF, "false: tinyloom has no windows in this family"),
    (
        "layer_types",
        |value| value.as_array().is_some_and(|all| all.iter().all(|kind| kind == "full_attention")),
        "absent or all \"full_attention\"",
    ),
];
