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
    /// GPT-2 with other names, windows in some layers, and scores as they are; TinyStories too.
    GptNeo,
    /// Blocks that read one input, rotation of a part of each head, biases; Pythia too.
    GptNeoX,
    /// Llama with norms by 1 + the weight, and scaled embeddings.
    Gemma,
    /// The same with norms behind each block too, windows in every other layer, and soft caps.
    Gemma2,
    /// Gemma 2 without soft caps, with a norm of each head's queries and keys, and other angles in layers with a
    /// window. Text alone.
    Gemma3,
}

/// What the queries of a layer see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerType {
    /// All keys before them.
    Full,
    /// Those in the sliding window.
    Sliding,
}

impl LayerType {
    const ALL: [Self; 2] = [Self::Full, Self::Sliding];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Full => "full_attention",
            Self::Sliding => "sliding_attention",
        }
    }
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

/// The same of GPT-Neo.
const GPT_NEO_NAMES: [(&str, &str); 5] = [
    ("num_hidden_layers", "num_layers"),
    ("num_attention_heads", "num_heads"),
    ("rms_norm_eps", "layer_norm_epsilon"),
    ("hidden_act", "activation_function"),
    ("sliding_window", "window_size"),
];

/// And of GPT-NeoX.
const GPT_NEOX_NAMES: [(&str, &str); 3] = [
    ("rms_norm_eps", "layer_norm_eps"),
    ("rope_theta", "rotary_emb_base"),
    ("partial_rotary_factor", "rotary_pct"),
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
    pub attn_logit_softcapping: Option<f64>,
    pub final_logit_softcapping: Option<f64>,
    /// Every rate of dropout that the family has.
    pub dropout: f64,
}

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
    attn_logit_softcapping: None,
    final_logit_softcapping: None,
    dropout: 0.0,
};

const GPT2: Defaults = Defaults {
    vocab_size: 50_257,
    hidden_size: 768,
    intermediate_size: None,
    depth: [12, 12],
    max_position_embeddings: 1024,
    norm_eps: 1e-5,
    tied: true,
    activation: Activation::GeluTanh,
    dropout: 0.1,
    ..LLAMA
};

const GEMMA: Defaults = Defaults {
    vocab_size: 256_000,
    hidden_size: 3072,
    intermediate_size: Some(24_576),
    depth: [28, 16],
    max_position_embeddings: 8192,
    tied: true,
    activation: Activation::GeluTanh,
    num_key_value_heads: Some(16),
    head_dim: Some(256),
    ..LLAMA
};

const GEMMA_2_AND_3: Defaults = Defaults {
    hidden_size: 2304,
    intermediate_size: Some(9216),
    depth: [26, 8],
    num_key_value_heads: Some(4),
    ..GEMMA
};

impl ModelType {
    const ALL: [Self; 10] = [
        Self::Llama,
        Self::Mistral,
        Self::Qwen2,
        Self::Qwen3,
        Self::Gpt2,
        Self::GptNeo,
        Self::GptNeoX,
        Self::Gemma,
        Self::Gemma2,
        Self::Gemma3,
    ];

    /// `model_type` and `architectures` as `config.json` has them.
    pub(super) const fn names(self) -> [&'static str; 2] {
        match self {
            Self::Llama => ["llama", "LlamaForCausalLM"],
            Self::Mistral => ["mistral", "MistralForCausalLM"],
            Self::Qwen2 => ["qwen2", "Qwen2ForCausalLM"],
            Self::Qwen3 => ["qwen3", "Qwen3ForCausalLM"],
            Self::Gpt2 => ["gpt2", "GPT2LMHeadModel"],
            Self::GptNeo => ["gpt_neo", "GPTNeoForCausalLM"],
            Self::GptNeoX => ["gpt_neox", "GPTNeoXForCausalLM"],
            Self::Gemma => ["gemma", "GemmaForCausalLM"],
            Self::Gemma2 => ["gemma2", "Gemma2ForCausalLM"],
            Self::Gemma3 => ["gemma3_text", "Gemma3ForCausalLM"],
        }
    }

    /// The family's own name of a field that Llama's config has too.
    pub(crate) fn spelled(self, field: &'static str) -> &'static str {
        let names: &[(&str, &str)] = match self {
            Self::Gpt2 => &GPT2_NAMES,
            Self::GptNeo => &GPT_NEO_NAMES,
            Self::GptNeoX => &GPT_NEOX_NAMES,
            Self::Gemma2 | Self::Gemma3 => &[("hidden_act", "hidden_activation")],
            _ => &[],
        };
        let own = names.iter().find(|(name, _)| *name == field);
        own.map_or(field, |(_, own)| own)
    }

    pub(super) const fn defaults(self) -> Defaults {
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
            Self::Gpt2 => GPT2,
            Self::GptNeo => Defaults {
                hidden_size: 2048,
                depth: [24, 16],
                max_position_embeddings: 2048,
                dropout: 0.0,
                ..GPT2
            },
            Self::GptNeoX => Defaults {
                vocab_size: 50_432,
                hidden_size: 6144,
                intermediate_size: Some(24_576),
                depth: [44, 64],
                norm_eps: 1e-5,
                activation: Activation::Gelu,
                ..LLAMA
            },
            Self::Gemma => GEMMA,
            Self::Gemma2 => Defaults {
                attn_logit_softcapping: Some(50.0),
                final_logit_softcapping: Some(30.0),
                ..GEMMA_2_AND_3
            },
            Self::Gemma3 => {
                Defaults { vocab_size: 262_208, max_position_embeddings: 131_072, ..GEMMA_2_AND_3 }
            }
        }
    }

    /// Whether the family reads `layer_types` and scales scores by `query_pre_attn_scalar`.
    pub(super) const fn alternates(self) -> bool {
        matches!(self, Self::Gemma2 | Self::Gemma3)
    }

    /// Whether it reads `final_logit_softcapping`.
    pub(super) const fn caps_logits(self) -> bool {
        self.alternates()
    }

    /// Whether layers with a window have a rotary embedding of their own.
    pub(super) const fn has_two_ropes(self) -> bool {
        matches!(self, Self::Gemma3)
    }

    /// A second field that names the activation, which other versions of transformers read.
    pub(super) const fn other_activation(self) -> Option<&'static str> {
        match self {
            Self::Gemma => Some("hidden_activation"),
            Self::Gemma2 | Self::Gemma3 => Some("hidden_act"),
            _ => None,
        }
    }

    /// Whether queries and keys are rotated; otherwise positions are learned.
    pub(super) const fn rotates(self) -> bool {
        !matches!(self, Self::Gpt2 | Self::GptNeo)
    }

    /// Whether it reads `num_key_value_heads` and `head_dim`; otherwise there are as many heads of both, of one size.
    pub(super) const fn groups_heads(self) -> bool {
        !matches!(self, Self::Gpt2 | Self::GptNeo | Self::GptNeoX)
    }

    /// Whether it reads which share of a head is rotated, `attention_bias` and `use_parallel_residual`.
    pub(super) const fn turns_in_part(self) -> bool {
        matches!(self, Self::GptNeoX)
    }

    /// Whether it reads `attention_types` and `attention_layers`.
    pub(super) const fn lists_attention(self) -> bool {
        matches!(self, Self::GptNeo)
    }

    /// Fields that shape the model and that no other family has.
    pub(super) const fn own_fields(self) -> &'static [&'static str] {
        match self {
            Self::GptNeo => &[PATTERN, LISTED],
            Self::GptNeoX => &["rotary_pct", "attention_bias", "use_parallel_residual"],
            _ => &[],
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
        ModelType::GptNeo => fields.size("window_size", 256, 1 << 24).map(Some),
        ModelType::Llama | ModelType::Gpt2 | ModelType::GptNeoX | ModelType::Gemma => {
            let allowed = "absent, or model_type \"mistral\", \"gemma2\" or \"gemma3_text\"";
            fields.require_neutral("sliding_window", |_| false, allowed)?;
            Ok(None)
        }
        ModelType::Mistral => match fields.take("sliding_window")? {
            None => Ok(Some(4096)),
            Some(Value::Null) => Ok(None),
            Some(value) => size("sliding_window", &value, 1 << 24).map(Some),
        },
        ModelType::Gemma2 | ModelType::Gemma3 => {
            fields.size("sliding_window", 4096, 1 << 24).map(Some)
        }
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

/// What the queries of each layer see, where a family has both kinds of layers. If no field says so, all have a
/// window but every second, or in Gemma 3 every sixth.
pub(super) fn layer_types(
    fields: &mut Fields,
    family: ModelType,
    layers: usize,
) -> Result<Vec<LayerType>> {
    if family.lists_attention() {
        return listed_types(fields, layers);
    }
    if !family.alternates() {
        return Ok(vec![]);
    }
    let mut kinds = vec![];
    if let Some(value) = fields.take_set("layer_types")? {
        let names = value.as_array().map_or(&[][..], Vec::as_slice);
        for name in names {
            kinds.extend(LayerType::ALL.into_iter().find(|kind| name == kind.name()));
        }
        if names.len() != layers || kinds.len() != layers {
            let allowed = "\"sliding_attention\" or \"full_attention\" for each layer";
            return Err(refuse("layer_types", &value, allowed));
        }
        return Ok(kinds);
    }
    let pattern = match family {
        ModelType::Gemma3 => fields.size("sliding_window_pattern", 6, 4096)?,
        _ => 2,
    };
    for layer in 1..=layers {
        kinds.push(if layer % pattern == 0 { LayerType::Full } else { LayerType::Sliding });
    }
    Ok(kinds)
}

/// GPT-Neo's fields for what the queries of each layer see: names with how often they follow, and one for each layer.
const PATTERN: &str = "attention_types";
const LISTED: &str = "attention_layers";
/// What they call layers without a window and those with it.
const NAMES: [&str; 2] = ["global", "local"];

/// Both fields, which must agree; without them every second layer has a window.
fn listed_types(fields: &mut Fields, layers: usize) -> Result<Vec<LayerType>> {
    let mut found: Option<Vec<LayerType>> = None;
    for name in [PATTERN, LISTED] {
        let Some(value) = fields.take_set(name)? else { continue };
        let mut kinds = vec![];
        let known = if name == PATTERN {
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
    Ok(found.unwrap_or_else(|| {
        let kind = |layer: usize| LayerType::ALL[layer % 2];
        (0..layers).map(kind).collect()
    }))
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

/// The same of a list that follows itself so often, unless that is more than `most`.
fn repeated(part: &Value, most: usize, kinds: &mut Vec<LayerType>) -> bool {
    let [names, count] = list(part) else { return false };
    let count = count.as_u64().unwrap_or(u64::MAX);
    // Nothing may follow itself for ever.
    if list(names).is_empty() || count > most as u64 {
        return false;
    }
    (0..count).all(|_| kinds.len() <= most && named(names, kinds))
}

/// Both fields of a model with those layers.
pub(super) fn attention_fields(kinds: &[LayerType]) -> [(&'static str, Value); 2] {
    let name = |kind: &LayerType| json!(NAMES[usize::from(*kind == LayerType::Sliding)]);
    let names: Vec<Value> = kinds.iter().map(name).collect();
    let count = kinds.len();
    let repeats = |period: &usize| {
        count.is_multiple_of(*period) && kinds[*period..] == kinds[..count - *period]
    };
    let period = (1..=count).find(repeats).unwrap_or(1);
    let pattern = vec![Value::Array(names[..period].to_vec()), json!(count / period)];
    let pattern = Value::Array(vec![Value::Array(pattern)]);
    [(PATTERN, pattern), (LISTED, Value::Array(names))]
}
