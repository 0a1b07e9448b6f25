//! SmolLM3 (Bakouch et al., "SmolLM3", 2025): Llama of which every fourth layer has no RoPE (Yang et al.,
//! arXiv:2501.18795).

use super::Family;
use super::gguf::{DECODER, Gguf, SILU, UNCAPPED};
use super::llama::{Differences, LLAMA, PAIRS, decoder};
use super::qwen::NO_WINDOWS;
use crate::config::slots::*;
use crate::config::{Field, Fields, Kind, Missing, ModelConfig, Slot, refuse};
use crate::error::Result;
use serde_json::{Value, json};

pub(super) static SMOLLM3: Family = Family {
    names: ["smollm3", "SmolLM3ForCausalLM"],
    like: Some(&LLAMA),
    fields: &[
        HIDDEN_SIZE.or(Missing::Size(2048)),
        HEADS.or(Missing::Size(16)),
        LAYERS.or(Missing::Size(36)),
        POSITIONS.or(Missing::Size(32_768)),
        KEY_VALUE_HEADS.or(Missing::Size(4)),
        ROPE.or(Missing::Real(2e6)),
        VOCAB_SIZE.or(Missing::Size(128_256)),
        TIED.or(Missing::Flag(true)),
        INTERVAL.or(Missing::Size(4)),
        ROPE_LAYERS.or_nothing(),
        SLICES.or_nothing(),
    ],
    refused: &NO_WINDOWS,
    gguf: Some(Gguf {
        architecture: "smollm3",
        modules: &[DECODER],
        changes: PAIRS,
        expected: &[SILU, UNCAPPED, (ROPE_LAYERS.name, &["[1, 1, 1, 0]"])],
    }),
    describe: |model| {
        let rope = |config: &ModelConfig, layer: usize, _| {
            let layers = config.own.get(ROPE_LAYERS.name)?.as_array()?;
            (layers.get(layer)?.as_u64() == Some(1)).then_some(0)
        };
        decoder(model, Differences { rope, padding: Some(128_004), ..Differences::NONE })
    },
};

static INTERVAL: Slot = Slot::number(
    "no_rope_layer_interval",
    Kind::Own(|field, fields, _| {
        fields.size(field.name, field.missing.size().unwrap_or(1), 4096).map(|every| json!(every))
    }),
    "One layer of SmolLM3 in this many has no RoPE, where `no_rope_layers` is left out. Default 4.",
);
static ROPE_LAYERS: Slot = Slot::number(
    "no_rope_layers",
    Kind::Own(read_layers),
    "For each layer of SmolLM3 1 if it has RoPE, and 0 if it has none.",
)
.typed("(0 | 1)[] | null");
/// The released model's config has 2 there, which transformers does not read.
static SLICES: Slot = Slot::number("pretraining_tp", Kind::With, "Has no effect.");

/// transformers allows more numbers than there are layers.
fn read_layers(field: &Field, fields: &mut Fields<'_>, config: &ModelConfig) -> Result<Value> {
    let layers = config.num_hidden_layers;
    let Some(value) = fields.take_set(field.name)? else {
        let every = config.own.get(INTERVAL.name).and_then(Value::as_u64).unwrap_or(1);
        let rope = (1..=layers as u64).map(|layer| u8::from(!layer.is_multiple_of(every)));
        return Ok(rope.collect());
    };
    let known = |one: &Value| matches!(one.as_u64(), Some(0 | 1));
    if value.as_array().is_some_and(|all| all.len() >= layers && all.iter().all(known)) {
        return Ok(value);
    }
    Err(refuse(field.name, &value, "1 for each layer with RoPE and 0 for each without"))
}

#[cfg(test)]
mod tests {
    use crate::arch::Architecture;
    use crate::config::ModelConfig;

    /// The config of SmolLM3-3B, as transformers 4 wrote it.
    #[test]
    fn every_fourth_layer_has_no_rope() {
        let text = r#"{"architectures":["SmolLM3ForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
            "bos_token_id":128000,"eos_token_id":128012,"hidden_act":"silu","hidden_size":2048,
            "initializer_range":0.02,"intermediate_size":11008,"max_position_embeddings":65536,
            "max_window_layers":28,"mlp_bias":false,"model_type":"smollm3","no_rope_layer_interval":4,
            "num_attention_heads":16,"num_hidden_layers":36,"num_key_value_heads":4,"pad_token_id":128004,
            "pretraining_tp":2,"rms_norm_eps":1e-06,"rope_scaling":null,"rope_theta":5000000.0,
            "sliding_window":null,"torch_dtype":"bfloat16","transformers_version":"4.54.0.dev0",
            "use_cache":false,"use_sliding_window":false,"vocab_size":128256}"#;
        let config = ModelConfig::from_json(text).unwrap();
        let architecture = Architecture::of(&config);
        assert_eq!(architecture.parameter_count(), 3_075_098_624);
        let ropes: Vec<_> =
            architecture.layers.iter().map(|layer| layer.heads().unwrap().rope).collect();
        assert_eq!(ropes[..5], [Some(0), Some(0), Some(0), None, Some(0)]);
        assert_eq!(ropes.iter().filter(|rope| rope.is_none()).count(), 9);
        let saved = config.to_json();
        assert!(saved.contains(r#""pretraining_tp": 2"#), "{saved}");
        assert_eq!(ModelConfig::from_json(&saved).unwrap(), config);
    }

    #[test]
    fn a_list_says_which_layers_have_rope() {
        let read = |more: &str| {
            ModelConfig::from_json(&format!(
                r#"{{"model_type":"smollm3","num_hidden_layers":3{more}}}"#
            ))
        };
        let config = read(r#","no_rope_layers":[0,1,0]"#).unwrap();
        let layers = Architecture::of(&config).layers;
        let ropes: Vec<_> = layers.iter().map(|layer| layer.heads().unwrap().rope).collect();
        assert_eq!(ropes, [None, Some(0), None]);
        for (more, named) in [
            (r#","no_rope_layers":[0,1]"#, "no_rope_layers is [0,1]"),
            (r#","no_rope_layers":[0,1,2]"#, "no_rope_layers is [0,1,2]"),
            (r#","noRopeLayers":[0,1,0]"#, "no_rope_layers"),
            (r#","no_rope_layer_interval":0"#, "no_rope_layer_interval is 0"),
            (r#","use_sliding_window":true"#, "use_sliding_window is true"),
        ] {
            let error = read(more).unwrap_err();
            assert!(error.message.contains(named), "{more}: {error}");
        }
    }
}
