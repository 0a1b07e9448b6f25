//! Model configuration with the names of Hugging Face's `config.json`.

mod dropout;
mod field;
mod fields;
mod keys;
mod layer_type;
mod layers;
mod lora;
mod peft;
mod refused;
mod rope;
pub mod slots;

pub use dropout::DropoutRates;
pub use field::{Field, Kind, Missing, Slot, Written};
pub use fields::{Fields, Neutral, refuse, size};
pub use layer_type::LayerType;
pub use layers::{LAYERS_LIST, LayerKind};
pub use lora::{ALL_LINEAR, LoraConfig};
pub use refused::{NO_BIASES, NOTHING, OFF, Refusal};
pub use rope::{RopeConfig, RopeScaling};

use crate::arch::{FAMILIES, Family, LEARNED_POSITIONS};
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use slots::{HEAD_DIM, KEY_VALUE_HEADS, ROPE, ROTARY_SHARE, SOFT_CAP};
use std::collections::BTreeMap;

/// Activation of the feed-forward block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Activation {
    #[default]
    #[serde(rename = "silu")]
    Silu,
    /// The exact GELU, through erf.
    #[serde(rename = "gelu")]
    Gelu,
    #[serde(rename = "gelu_pytorch_tanh")]
    GeluTanh,
}

impl Activation {
    /// Every activation.
    pub const ALL: [Self; 3] = [Self::Silu, Self::Gelu, Self::GeluTanh];

    /// The name as `config.json` has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Silu => "silu",
            Self::Gelu => "gelu",
            Self::GeluTanh => "gelu_pytorch_tanh",
        }
    }

    /// Also knows the aliases under which transformers has the same functions.
    fn from_name(name: &str) -> Option<Self> {
        match name {
            "silu" | "swish" => Some(Self::Silu),
            "gelu" => Some(Self::Gelu),
            "gelu_pytorch_tanh" | "gelu_new" => Some(Self::GeluTanh),
            _ => None,
        }
    }
}

/// A validated configuration: every field is resolved, every division checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelConfig {
    pub family: &'static Family,
    pub vocab_size: usize,
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub num_hidden_layers: usize,
    pub num_attention_heads: usize,
    pub num_key_value_heads: usize,
    pub head_dim: usize,
    pub max_position_embeddings: usize,
    pub rms_norm_eps: f64,
    pub rope: RopeConfig,
    /// The share of each head that it turns, from the first element on.
    pub partial_rotary_factor: f64,
    /// RoPE of layers with a window, where they have another one.
    pub rope_local: Option<RopeConfig>,
    pub tie_word_embeddings: bool,
    pub hidden_act: Activation,
    pub initializer_range: f64,
    /// A position sees at most this many of the latest positions, itself among them.
    pub sliding_window: Option<usize>,
    /// Which layers have that window. Empty: all.
    pub layer_types: Vec<LayerType>,
    /// Attention scores are squashed into ± this by tanh. Gemma 2 has the field; transformers' Llama and
    /// Mistral ignore it.
    pub attn_logit_softcapping: Option<f64>,
    /// Logits are squashed into ± this by tanh.
    pub final_logit_softcapping: Option<f64>,
    /// Scores are divided by its root; none: by that of `head_dim`.
    pub query_pre_attn_scalar: Option<usize>,
    /// Where layers differ from the rest of this config: kinds of layers in their order, which begins again after the
    /// last one. Ask [`ModelConfig::layer`].
    pub layers: Vec<LayerKind>,
    /// What only the family has, by the names of its [slots](Slot).
    pub own: BTreeMap<&'static str, Value>,
    /// What training leaves out.
    pub dropout: DropoutRates,
    /// The fields of the caller's `config.json` that tinyloom does not read (token ids, dtype
    /// notes, …), as JSON texts by name, kept so that `save` gives them back.
    pub extra: BTreeMap<String, String>,
}

/// Largest `head_dim` that the attention kernels hold in workgroup memory.
pub const MAX_HEAD_DIM: usize = 256;
/// Kernels index the elements of a tensor with `u32`, and signed offsets must not wrap either.
pub const MAX_TENSOR_ELEMENTS: u64 = i32::MAX as u64;

impl ModelConfig {
    /// Reads a Hugging Face `config.json` of a supported family, as transformers 4 and 5 write it. Missing fields get
    /// the defaults of transformers' config of that family; whatever the file asks for and tinyloom lacks is refused by
    /// name, and so is a field whose name is misspelt. A text above a megabyte is refused unread.
    pub fn from_json(text: &str) -> Result<Self> {
        Self::read(text, FAMILIES)
    }

    /// Reads a config that a program has written by hand. An unknown field is refused too, and one that transformers'
    /// model of this family ignores.
    pub fn from_code(text: &str) -> Result<Self> {
        let config = Self::read(text, FAMILIES)?;
        let fields = Fields::read(text)?;
        keys::refuse_unknown(&config.extra, config.family)?;
        refused::refuse_ignored(&fields, config.family)?;
        Ok(config)
    }

    /// Reads a config of one of these families. The first stands for a missing `model_type`.
    pub fn read(text: &str, families: &[&'static Family]) -> Result<Self> {
        let mut fields = Fields::read(text)?;
        // A model that reads images too has its text model's config in it.
        if let Some(inner) = fields.nested(TEXT_CONFIG, families)? {
            fields = inner;
        }
        // First: another family has other names for its fields, which are no misspellings.
        let family = family(&mut fields, families)?;
        // A save writes its own.
        for rewritten in ["dtype", "torch_dtype", NOTE] {
            fields.drop(rewritten);
        }
        refused::refuse_unsupported(&fields, family)?;
        keys::refuse_near_misses(&fields, family)?;
        let mut config = Self::of(family);
        for field in family.fields() {
            field.read(&mut fields, &mut config)?;
        }
        if !family.has(&KEY_VALUE_HEADS) {
            config.num_key_value_heads = config.num_attention_heads;
        }
        if !family.has(&HEAD_DIM) {
            config.head_dim = slots::head_dim(&config, None, None)?;
        }
        config.extra = fields.rest();
        config.check()?;
        config.check_sizes()?;
        Ok(config)
    }

    /// A config whose fields are yet to be read.
    fn of(family: &'static Family) -> Self {
        Self { family, partial_rotary_factor: 1.0, ..Self::default() }
    }

    /// A field's name as the config's family spells it.
    pub fn spelled(&self, field: &'static str) -> &'static str {
        let own = self.family.fields().into_iter().find(|own| own.slot.name == field);
        own.map_or(field, |own| own.name)
    }

    /// Whether a flag of the family's own is on.
    pub fn own_flag(&self, slot: &Slot) -> bool {
        self.own.get(slot.name) == Some(&Value::Bool(true))
    }

    /// The token whose look-ups are not trained: `pad_token_id`, which counts from the vocabulary's end below 0, or
    /// `missing` where the config has no such field. None where the vocabulary has no such row.
    pub fn padding(&self, missing: Option<usize>) -> Option<usize> {
        let id = match self.extra.get("pad_token_id") {
            Some(text) => text.parse::<i64>().ok()?,
            None => missing? as i64,
        };
        let row = if id < 0 { id + self.vocab_size as i64 } else { id };
        usize::try_from(row).ok().filter(|&row| row < self.vocab_size)
    }

    /// A number of the family's own.
    pub fn own_real(&self, slot: &Slot) -> f64 {
        self.own.get(slot.name).and_then(Value::as_f64).unwrap_or(1.0)
    }

    /// Elements of each head that the rotary embedding turns.
    pub fn rotary_dims(&self) -> usize {
        (self.head_dim as f64 * self.partial_rotary_factor) as usize
    }

    /// The checks that span several fields or need the resolved values.
    fn check(&self) -> Result<()> {
        let Self { num_attention_heads: heads, num_key_value_heads: kv_heads, .. } = *self;
        if !heads.is_multiple_of(kv_heads) {
            return Err(Error::config(format!(
                "num_attention_heads ({heads}) must be a multiple of \
                 num_key_value_heads ({kv_heads})"
            )));
        }
        let positive_f32 = |x: f64| (x as f32).is_normal() && x > 0.0;
        let cap = |x: f64| (1e-3..=1e6).contains(&x);
        let caps = [self.attn_logit_softcapping, self.final_logit_softcapping]
            .map(|cap| cap.unwrap_or(1.0));
        let local = self.rope_local.as_ref().map_or(1.0, |rope| rope.theta);
        let (share, dims) = (self.partial_rotary_factor, self.rotary_dims());
        for rope in [Some(&self.rope), self.rope_local.as_ref()].into_iter().flatten() {
            rope.check(dims)?;
        }
        for (name, value, good, allowed) in [
            (
                self.spelled("rms_norm_eps"),
                self.rms_norm_eps,
                positive_f32(self.rms_norm_eps) && self.rms_norm_eps <= 1.0,
                "a number from 1.2e-38 to 1",
            ),
            (self.spelled("rope_theta"), self.rope.theta, positive_f32(self.rope.theta), POSITIVE),
            ("rope_local_base_freq", local, positive_f32(local), POSITIVE),
            // Elements turn in pairs.
            (
                self.spelled(ROTARY_SHARE.name),
                share,
                share <= 1.0 && dims > 0 && dims.is_multiple_of(2),
                "a share of a head that is an even number of elements",
            ),
            (
                "initializer_range",
                self.initializer_range,
                (0.0..=1.0).contains(&self.initializer_range),
                "a number from 0 to 1",
            ),
            ("attn_logit_softcapping", caps[0], cap(caps[0]), CAPS),
            ("final_logit_softcapping", caps[1], cap(caps[1]), CAPS),
        ] {
            if !good {
                return Err(refuse(name, &json!(value), allowed));
            }
        }
        Ok(())
    }

    /// Kernels can index every tensor.
    fn check_sizes(&self) -> Result<()> {
        let rotates = self.family.has(&ROPE) && !self.own_flag(&LEARNED_POSITIONS);
        let positions = if rotates { 0 } else { self.max_position_embeddings as u64 };
        let [hidden, heads, kv_heads, head_dim] =
            [self.hidden_size, self.num_attention_heads, self.num_key_value_heads, self.head_dim]
                .map(|n| n as u64);
        for (what, elements) in [
            ("vocab_size × hidden_size", self.vocab_size as u64 * hidden),
            (
                "the query, key and value weights of a layer",
                (heads + 2 * kv_heads) * head_dim * hidden,
            ),
            ("hidden_size × 2 × intermediate_size", hidden * 2 * self.intermediate_size as u64),
            ("positions × hidden_size", positions * hidden),
        ] {
            if elements > MAX_TENSOR_ELEMENTS {
                return Err(Error::config(format!(
                    "{what} is {elements} elements; a tensor may have at most {MAX_TENSOR_ELEMENTS}"
                )));
            }
        }
        Ok(())
    }

    /// Positions that the queries of a layer see.
    pub fn window(&self, layer: usize) -> Option<usize> {
        match self.layer_types.get(layer) {
            Some(LayerType::Full) => None,
            _ => self.sliding_window,
        }
    }

    /// The text of `config.json`: loads in transformers 4 and 5 and gives back the fields that tinyloom does not read.
    pub fn to_json(&self) -> String {
        let kept = self.extra.iter().map(|(name, text)| (name.as_str(), Text::kept(text)));
        let mut map: BTreeMap<&str, Text<'_>> = kept.collect();
        let mut write = |name, value| map.insert(name, Text::Own(value));
        let [model_type, architecture] = self.family.names;
        write("model_type", json!(model_type));
        write("architectures", json!([architecture]));
        for name in ["dtype", "torch_dtype"] {
            write(name, json!("float32"));
        }
        let mut config = self.clone();
        for field in self.family.fields() {
            for (name, value) in field.write(&mut config) {
                write(name, value);
            }
            let optional = field.slot.name == SOFT_CAP.name && field.missing == Missing::Nothing;
            // The file beside a model of layers reads it.
            let ignored = optional && !self.family.has(&LAYERS_LIST);
            if ignored && self.attn_logit_softcapping.is_some() {
                write(NOTE, json!(SOFT_CAP_NOTE));
            }
        }
        let mut text = serde_json::to_string_pretty(&map).expect("a map of JSON values serialises");
        text.push('\n');
        text
    }
}

/// A field of a config that is written.
#[derive(Serialize)]
#[serde(untagged)]
enum Text<'a> {
    Own(Value),
    Kept(&'a RawValue),
}

impl<'a> Text<'a> {
    /// A field as it was read. What is no JSON, which no config has, becomes a string.
    fn kept(text: &'a str) -> Self {
        serde_json::from_str(text).map_or_else(|_| Self::Own(json!(text)), Self::Kept)
    }
}

/// The range of f32.
const POSITIVE: &str = "a number from 1.2e-38 to 3.4e38";
/// A smaller cap would hide all differences. A larger one changes nothing in f32.
const CAPS: &str = "null or a number from 0.001 to 1000000";

/// Where a config of a model that reads images too has that of its text model.
const TEXT_CONFIG: &str = "text_config";

/// A field for people who read a saved config.
const NOTE: &str = "tinyloom_note";
const SOFT_CAP_NOTE: &str =
    "transformers ignores attn_logit_softcapping in this model: it computes other logits";

/// The family of a config: `model_type`, which `architectures` must not contradict.
fn family(fields: &mut Fields<'_>, families: &[&'static Family]) -> Result<&'static Family> {
    let allowed = || {
        let names: Vec<_> = families.iter().map(|of| format!("\"{}\"", of.names[0])).collect();
        match names.split_last() {
            Some((last, others)) => format!("{} or {last}", others.join(", ")),
            None => String::new(),
        }
    };
    let value = fields.take_set("model_type")?;
    let is = |family: &&&Family| value.as_ref().is_none_or(|value| value == family.names[0]);
    let Some(found) = families.iter().find(is) else {
        return Err(refuse("model_type", &value.unwrap_or_default(), &allowed()));
    };
    let architecture = found.names[1];
    let Some(given) = fields.take_set("architectures")? else { return Ok(*found) };
    let classes: Option<Vec<&str>> =
        given.as_array().and_then(|all| all.iter().map(Value::as_str).collect());
    // The type says what the model is, and a class how a program used it: `LlamaModel`, `MyForCausalLM`.
    let stem = architecture.trim_end_matches("ForCausalLM").trim_end_matches("LMHeadModel");
    match classes {
        Some(classes) if value.is_some() || classes.iter().all(|class| class.starts_with(stem)) => {
            Ok(*found)
        }
        _ => Err(refuse(
            "architectures",
            &given,
            &format!("[\"{architecture}\"], or model_type given"),
        )),
    }
}

#[cfg(test)]
mod family_tests;
#[cfg(test)]
mod form_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod typescript_tests;
#[cfg(test)]
mod worst_tests;
