//! The model families that a config may name, and what transformers takes for their missing fields.

use super::fields::{Fields, refuse, size};
use crate::error::Result;
use serde_json::{Value, json};

/// Which of transformers' models a configuration is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModelType {
    #[default]
    Llama,
    /// Llama with a sliding window.
    Mistral,
    /// Llama with biases of queries, keys and values; Qwen2.5 too.
    Qwen2,
    /// Llama with a norm of each head's queries and keys.
    Qwen3,
}

/// What stands for fields that are missing.
pub(super) struct Defaults {
    pub vocab_size: usize,
    pub intermediate_size: usize,
    pub max_position_embeddings: usize,
    /// `None`: as many as there are query heads.
    pub num_key_value_heads: Option<usize>,
    /// `None`: `hidden_size / num_attention_heads`.
    pub head_dim: Option<usize>,
}

impl ModelType {
    const ALL: [Self; 4] = [Self::Llama, Self::Mistral, Self::Qwen2, Self::Qwen3];

    /// `model_type` and `architectures` as `config.json` has them.
    pub(super) const fn names(self) -> [&'static str; 2] {
        match self {
            Self::Llama => ["llama", "LlamaForCausalLM"],
            Self::Mistral => ["mistral", "MistralForCausalLM"],
            Self::Qwen2 => ["qwen2", "Qwen2ForCausalLM"],
            Self::Qwen3 => ["qwen3", "Qwen3ForCausalLM"],
        }
    }

    pub(super) const fn defaults(self) -> Defaults {
        match self {
            Self::Llama => Defaults {
                vocab_size: 32_000,
                intermediate_size: 11_008,
                max_position_embeddings: 2048,
                num_key_value_heads: None,
                head_dim: None,
            },
            Self::Mistral => Defaults {
                vocab_size: 32_000,
                intermediate_size: 14_336,
                max_position_embeddings: 131_072,
                num_key_value_heads: Some(8),
                head_dim: None,
            },
            Self::Qwen2 | Self::Qwen3 => Defaults {
                vocab_size: 151_936,
                intermediate_size: 22_016,
                max_position_embeddings: 32_768,
                num_key_value_heads: Some(32),
                head_dim: if matches!(self, Self::Qwen3) { Some(128) } else { None },
            },
        }
    }

    /// The names of all families, for messages.
    pub(super) fn allowed() -> String {
        let names = Self::ALL.map(|family| format!("\"{}\"", family.names()[0]));
        let (last, others) = names.split_last().expect("there are families");
        format!("{} or {last}", others.join(", "))
    }
}

/// The family that a config is of: `model_type`, which `architectures` must not contradict.
pub(super) fn model_type(fields: &mut Fields) -> Result<ModelType> {
    let found = match fields.take_set("model_type")? {
        None => ModelType::Llama,
        Some(value) => ModelType::ALL
            .into_iter()
            .find(|kind| value == kind.names()[0])
            .ok_or_else(|| refuse("model_type", &value, &ModelType::allowed()))?,
    };
    let architecture = found.names()[1];
    match fields.take_set("architectures")? {
        Some(value) if value != json!([architecture]) => {
            Err(refuse("architectures", &value, &format!("[\"{architecture}\"]")))
        }
        _ => Ok(found),
    }
}

/// Positions that a query sees, by the rules of the family.
pub(super) fn sliding_window(fields: &mut Fields, family: ModelType) -> Result<Option<usize>> {
    match family {
        ModelType::Llama => {
            let allowed = "absent, or model_type \"mistral\"";
            fields.require_neutral("sliding_window", |_| false, allowed)?;
            Ok(None)
        }
        ModelType::Mistral => match fields.take("sliding_window")? {
            None => Ok(Some(4096)),
            Some(Value::Null) => Ok(None),
            Some(value) => size("sliding_window", &value, 1 << 24).map(Some),
        },
        // The field counts only beside this one, and then for some of the layers.
        ModelType::Qwen2 | ModelType::Qwen3 => {
            let off = |value: &Value| *value == Value::Bool(false);
            let allowed = "false: tinyloom has no windows in this family";
            fields.require_neutral("use_sliding_window", off, allowed)?;
            let full = |value: &Value| {
                value.as_array().is_some_and(|all| all.iter().all(|kind| kind == "full_attention"))
            };
            fields.require_neutral("layer_types", full, "absent or all \"full_attention\"")?;
            Ok(None)
        }
    }
}
