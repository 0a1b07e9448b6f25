//! The model families that a config may name, and what transformers takes for their missing fields.

use super::Activation;
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
    /// Layer norms with biases, learned positions, biases of all products; DistilGPT-2 too.
    Gpt2,
}

/// Fields of Llama's config, and how GPT-2's spells them.
const GPT2_NAMES: [(&str, &str); 7] = [
    ("hidden_size", "n_embd"),
    ("intermediate_size", "n_inner"),
    ("num_hidden_layers", "n_layer"),
    ("num_attention_heads", "n_head"),
    ("max_position_embeddings", "n_positions"),
    ("rms_norm_eps", "layer_norm_epsilon"),
    ("hidden_act", "activation_function"),
];

/// What stands for fields that are missing.
pub(super) struct Defaults {
    pub vocab_size: usize,
    pub hidden_size: usize,
    /// `None`: four times the hidden size.
    pub intermediate_size: Option<usize>,
    /// Layers, and heads of queries.
    pub depth: [usize; 2],
    pub max_position_embeddings: usize,
    pub norm_eps: f64,
    pub tied: bool,
    pub activation: Activation,
    /// `None`: as many as there are query heads.
    pub num_key_value_heads: Option<usize>,
    /// `None`: `hidden_size / num_attention_heads`.
    pub head_dim: Option<usize>,
}

impl ModelType {
    const ALL: [Self; 5] = [Self::Llama, Self::Mistral, Self::Qwen2, Self::Qwen3, Self::Gpt2];

    /// `model_type` and `architectures` as `config.json` has them.
    pub(super) const fn names(self) -> [&'static str; 2] {
        match self {
            Self::Llama => ["llama", "LlamaForCausalLM"],
            Self::Mistral => ["mistral", "MistralForCausalLM"],
            Self::Qwen2 => ["qwen2", "Qwen2ForCausalLM"],
            Self::Qwen3 => ["qwen3", "Qwen3ForCausalLM"],
            Self::Gpt2 => ["gpt2", "GPT2LMHeadModel"],
        }
    }

    /// The family's own name of a field that Llama's config has too.
    pub(crate) fn spelled(self, field: &'static str) -> &'static str {
        let own = GPT2_NAMES.iter().find(|(name, _)| self == Self::Gpt2 && *name == field);
        own.map_or(field, |(_, own)| own)
    }

    pub(super) const fn defaults(self) -> Defaults {
        const LLAMA: Defaults = Defaults {
            vocab_size: 32_000,
            hidden_size: 4096,
            intermediate_size: Some(11_008),
            depth: [32, 32],
            max_position_embeddings: 2048,
            norm_eps: 1e-6,
            tied: false,
            activation: Activation::Silu,
            num_key_value_heads: None,
            head_dim: None,
        };
        match self {
            Self::Llama => LLAMA,
            Self::Mistral => Defaults {
                intermediate_size: Some(14_336),
                max_position_embeddings: 131_072,
                num_key_value_heads: Some(8),
                ..LLAMA
            },
            Self::Qwen2 | Self::Qwen3 => Defaults {
                vocab_size: 151_936,
                intermediate_size: Some(22_016),
                max_position_embeddings: 32_768,
                num_key_value_heads: Some(32),
                head_dim: if matches!(self, Self::Qwen3) { Some(128) } else { None },
                ..LLAMA
            },
            Self::Gpt2 => Defaults {
                vocab_size: 50_257,
                hidden_size: 768,
                intermediate_size: None,
                depth: [12, 12],
                max_position_embeddings: 1024,
                norm_eps: 1e-5,
                tied: true,
                activation: Activation::GeluTanh,
                ..LLAMA
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
        ModelType::Llama | ModelType::Gpt2 => {
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
