//! Model configuration with the names of Hugging Face's `config.json`.

mod dropout;
mod family;
mod fields;
mod keys;
mod lora;
mod peft;
mod refused;
mod rope;

pub use dropout::DropoutRates;
pub use family::{LayerType, ModelType};
use family::{layer_types, model_type, sliding_window};
pub use lora::{ALL_LINEAR, LoraConfig};
use rope::Ropes;
pub use rope::{RopeConfig, RopeScaling};
use std::collections::BTreeMap;

use crate::error::{Error, Result};
use fields::{Fields, refuse, size};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Activation of the feed-forward block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Activation {
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
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    pub model_type: ModelType,
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
    /// Its base in layers with a window, where they have another one.
    pub rope_local_base_freq: Option<f64>,
    pub tie_word_embeddings: bool,
    pub hidden_act: Activation,
    pub initializer_range: f64,
    /// A position sees at most this many of the latest positions, itself among them.
    pub sliding_window: Option<usize>,
    /// Which layers have that window; none: all.
    pub layer_types: Vec<LayerType>,
    /// Attention scores are squashed into ± this by tanh. Gemma 2 has the field; transformers' Llama and
    /// Mistral ignore it.
    pub attn_logit_softcapping: Option<f64>,
    /// Logits are squashed into ± this by tanh.
    pub final_logit_softcapping: Option<f64>,
    /// Scores are divided by its root; none: by that of `head_dim`.
    pub query_pre_attn_scalar: Option<usize>,
    /// The products around attention have biases, where the family has a field for it.
    pub attention_bias: bool,
    /// Attention and the feed-forward block of a layer read one input, where the family has a field for it.
    pub parallel_residual: bool,
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
    /// Reads a Hugging Face `config.json` of one of [`ModelType`]'s families, as transformers 4 and 5
    /// write it. Missing fields get the defaults of transformers' config of that family;
    /// whatever the file asks for and tinyloom lacks is refused by name, and so is a field whose
    /// name is misspelt. A text above a megabyte is refused unread.
    pub fn from_json(text: &str) -> Result<Self> {
        let mut fields = Fields::read(text)?;
        // First: another family has other names for its fields, which are no misspellings.
        let model_type = model_type(&mut fields)?;
        let missing = model_type.defaults();
        // A save writes its own.
        for rewritten in ["dtype", "torch_dtype", NOTE] {
            fields.drop(rewritten);
        }
        refused::refuse_unsupported(&fields, model_type)?;
        keys::refuse_near_misses(&fields, model_type)?;
        let spelled = |field| model_type.spelled(field);
        let [layers, heads] = missing.depth;
        let hidden_size = fields.size(spelled("hidden_size"), missing.hidden_size, 1 << 20)?;
        let num_attention_heads = fields.size(spelled("num_attention_heads"), heads, 1 << 16)?;
        let num_hidden_layers = fields.size(spelled("num_hidden_layers"), layers, 4096)?;
        let positions = (spelled("max_position_embeddings"), missing.max_position_embeddings);
        let max_position_embeddings = fields.size(positions.0, positions.1, 1 << 24)?;
        let num_key_value_heads = key_value_heads(&mut fields, model_type, num_attention_heads)?;
        let head_dim = head_dim(&mut fields, model_type, hidden_size, num_attention_heads)?;
        let Ropes { whole: rope, local: rope_local_base_freq, partial: partial_rotary_factor } =
            rope::rope(&mut fields, max_position_embeddings, model_type)?;
        let feed = fields.optional_size(spelled("intermediate_size"), 1 << 22)?;
        let (final_logit_softcapping, query_pre_attn_scalar) =
            caps_and_scale(&mut fields, model_type, missing.final_logit_softcapping)?;
        let config = Self {
            model_type,
            vocab_size: fields.size("vocab_size", missing.vocab_size, 1 << 24)?,
            hidden_size,
            intermediate_size: feed.or(missing.intermediate_size).unwrap_or(4 * hidden_size),
            num_hidden_layers,
            num_attention_heads,
            num_key_value_heads,
            head_dim,
            max_position_embeddings,
            rms_norm_eps: fields.real(spelled("rms_norm_eps"), missing.norm_eps)?,
            rope,
            partial_rotary_factor,
            rope_local_base_freq,
            tie_word_embeddings: fields.flag("tie_word_embeddings", missing.tied)?,
            hidden_act: hidden_act(&mut fields, model_type, missing.activation)?,
            initializer_range: fields.real("initializer_range", 0.02)?,
            sliding_window: sliding_window(&mut fields, model_type)?,
            layer_types: layer_types(&mut fields, model_type, num_hidden_layers)?,
            attn_logit_softcapping: fields
                .real_or("attn_logit_softcapping", missing.attn_logit_softcapping)?,
            final_logit_softcapping,
            query_pre_attn_scalar,
            attention_bias: own_flag(&mut fields, model_type, "attention_bias")?,
            parallel_residual: own_flag(&mut fields, model_type, PARALLEL)?,
            dropout: DropoutRates::read(&mut fields, model_type)?,
            extra: fields.rest(),
        };
        config.check()?;
        config.check_sizes()?;
        Ok(config)
    }

    /// A field's name as the config's family spells it.
    pub fn spelled(&self, field: &'static str) -> &'static str {
        self.model_type.spelled(field)
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
        let local = self.rope_local_base_freq.unwrap_or(1.0);
        let (share, dims) = (self.partial_rotary_factor, self.rotary_dims());
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
                "rotary_pct",
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
        // Of old files. Newer ones have another name for it.
        let context = self.extra.get("n_ctx").filter(|_| self.model_type == ModelType::Gpt2);
        match context.filter(|text| **text != self.max_position_embeddings.to_string()) {
            None => Ok(()),
            Some(text) => Err(Error::config(format!(
                "config field n_ctx is {text:.200}; it must be n_positions, {}",
                self.max_position_embeddings
            ))),
        }
    }

    /// Kernels can index every tensor.
    fn check_sizes(&self) -> Result<()> {
        let rotates = self.model_type.rotates();
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

    /// Fields that only some families have.
    fn own_fields(&self) -> Vec<(&'static str, Value)> {
        let mut fields = self.dropout.fields(self.model_type);
        if self.model_type.rotates() {
            let (local, share) = (self.rope_local_base_freq, self.partial_rotary_factor);
            let ropes = Ropes { whole: self.rope, local, partial: share };
            fields.extend(ropes.fields(self.model_type));
        }
        if self.model_type.turns_in_part() {
            fields.push(("attention_bias", json!(self.attention_bias)));
            fields.push((PARALLEL, json!(self.parallel_residual)));
        }
        if self.model_type.lists_attention() {
            fields.extend(family::attention_fields(&self.layer_types));
            fields.push(("window_size", json!(self.sliding_window)));
        }
        fields
    }

    /// The text of `config.json`: loads in transformers 4 and 5 and gives back the fields that
    /// tinyloom does not read.
    pub fn to_json(&self) -> String {
        let kept = self.extra.iter().map(|(name, text)| (name.as_str(), Written::kept(text)));
        let mut map: BTreeMap<&str, Written> = kept.collect();
        let mut write = |name, value| map.insert(name, Written::Own(value));
        let [model_type, architecture] = self.model_type.names();
        let alternates = self.model_type.alternates();
        if alternates || self.model_type == ModelType::Mistral {
            write("sliding_window", json!(self.sliding_window));
        }
        if alternates {
            let names = self.layer_types.iter().map(|kind| json!(kind.name())).collect();
            write("layer_types", Value::Array(names));
            write("final_logit_softcapping", json!(self.final_logit_softcapping));
            write("query_pre_attn_scalar", json!(self.query_pre_attn_scalar));
        }
        if self.attn_logit_softcapping.is_some() || alternates {
            write("attn_logit_softcapping", json!(self.attn_logit_softcapping));
        }
        if self.attn_logit_softcapping.is_some() && self.model_type != ModelType::Gemma2 {
            write(NOTE, json!(SOFT_CAP_NOTE));
        }
        let learned = !self.model_type.rotates();
        // GPT-2's own name of the function, and no number for what follows from the hidden size.
        let act = if learned && self.hidden_act == Activation::GeluTanh {
            "gelu_new"
        } else {
            self.hidden_act.name()
        };
        let feed = self.intermediate_size;
        let feed = if learned && feed == 4 * self.hidden_size { Value::Null } else { json!(feed) };
        for (name, value) in [
            ("model_type", json!(model_type)),
            ("architectures", json!([architecture])),
            ("vocab_size", json!(self.vocab_size)),
            ("hidden_size", json!(self.hidden_size)),
            ("intermediate_size", feed),
            ("num_hidden_layers", json!(self.num_hidden_layers)),
            ("num_attention_heads", json!(self.num_attention_heads)),
            ("max_position_embeddings", json!(self.max_position_embeddings)),
            ("rms_norm_eps", json!(self.rms_norm_eps)),
            ("tie_word_embeddings", json!(self.tie_word_embeddings)),
            ("hidden_act", json!(act)),
            ("initializer_range", json!(self.initializer_range)),
            ("dtype", json!("float32")),
            ("torch_dtype", json!("float32")),
        ] {
            write(self.spelled(name), value);
        }
        if self.model_type.groups_heads() {
            write("num_key_value_heads", json!(self.num_key_value_heads));
            write("head_dim", json!(self.head_dim));
        }
        for (name, value) in self.own_fields() {
            write(name, value);
        }
        let mut text = serde_json::to_string_pretty(&map).expect("a map of JSON values serialises");
        text.push('\n');
        text
    }
}

/// A field of a config that is written.
#[derive(Serialize)]
#[serde(untagged)]
enum Written<'a> {
    Own(Value),
    Kept(&'a RawValue),
}

impl<'a> Written<'a> {
    /// A field as it was read. What is no JSON, which no config has, becomes a string.
    fn kept(text: &'a str) -> Self {
        serde_json::from_str(text).map_or_else(|_| Self::Own(json!(text)), Self::Kept)
    }
}

/// The range of f32.
const POSITIVE: &str = "a number from 1.2e-38 to 3.4e38";
/// A smaller cap would hide all differences. A larger one changes nothing in f32.
const CAPS: &str = "null or a number from 0.001 to 1000000";

/// A field for people who read a saved config.
const NOTE: &str = "tinyloom_note";
const PARALLEL: &str = "use_parallel_residual";
const SOFT_CAP_NOTE: &str =
    "transformers ignores attn_logit_softcapping in this model: it computes other logits";

fn head_dim(fields: &mut Fields, family: ModelType, hidden: usize, heads: usize) -> Result<usize> {
    let allowed = format!("a multiple of 4 up to {MAX_HEAD_DIM}");
    let own = if family.groups_heads() { fields.take_set("head_dim")? } else { None };
    let Some(value) = own else {
        if let Some(head_dim) = family.defaults().head_dim {
            return Ok(head_dim);
        }
        let (of_hidden, of_heads) =
            (family.spelled("hidden_size"), family.spelled("num_attention_heads"));
        if !hidden.is_multiple_of(heads) {
            return Err(Error::config(format!(
                "{of_hidden} ({hidden}) is not a multiple of {of_heads} ({heads}): \
                 change one of them{}",
                if family.groups_heads() { ", or give head_dim" } else { "" }
            )));
        }
        let head_dim = hidden / heads;
        if !head_dim.is_multiple_of(4) || head_dim > MAX_HEAD_DIM {
            return Err(Error::config(format!(
                "head_dim, taken as {of_hidden} / {of_heads} ({hidden} / {heads}), is \
                 {head_dim}; it must be {allowed} (fields left out have transformers' defaults)"
            )));
        }
        return Ok(head_dim);
    };
    size("head_dim", &value, MAX_HEAD_DIM)
        .ok()
        .filter(|n| n.is_multiple_of(4))
        .ok_or_else(|| refuse("head_dim", &value, &allowed))
}

/// Key-value heads: as many as there are heads where a family has no field for them.
fn key_value_heads(fields: &mut Fields, family: ModelType, heads: usize) -> Result<usize> {
    if !family.groups_heads() {
        return Ok(heads);
    }
    let missing = family.defaults().num_key_value_heads.unwrap_or(usize::MAX).min(heads);
    Ok(fields.optional_size("num_key_value_heads", heads)?.unwrap_or(missing))
}

/// A field that is true where it is missing, of families that have it.
fn own_flag(fields: &mut Fields, family: ModelType, name: &str) -> Result<bool> {
    if family.turns_in_part() { fields.flag(name, true) } else { Ok(false) }
}

/// The soft cap of logits, and what scores are divided by the root of, where a family has both.
fn caps_and_scale(
    fields: &mut Fields,
    family: ModelType,
    missing: Option<f64>,
) -> Result<(Option<f64>, Option<usize>)> {
    if !family.alternates() {
        return Ok((None, None));
    }
    let cap = fields.real_or("final_logit_softcapping", missing)?;
    Ok((cap, Some(fields.size("query_pre_attn_scalar", 256, 1 << 24)?)))
}

/// The activation. A second field that names another one would be for a version of transformers that
/// computes something else.
fn hidden_act(fields: &mut Fields, family: ModelType, missing: Activation) -> Result<Activation> {
    let named = |name, value: &Value| {
        let known = value.as_str().and_then(Activation::from_name);
        known.ok_or_else(|| refuse(name, value, "\"silu\", \"gelu\" or \"gelu_pytorch_tanh\""))
    };
    let name = family.spelled("hidden_act");
    let found = match fields.take(name)? {
        None => missing,
        Some(value) => named(name, &value)?,
    };
    if let Some(other) = family.other_activation()
        && let Some(value) = fields.take_set(other)?
        && named(other, &value)? != found
    {
        return Err(refuse(other, &value, &format!("\"{}\", as {name}", found.name())));
    }
    Ok(found)
}

#[cfg(test)]
mod family_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod worst_tests;
