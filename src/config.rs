//! Model configuration with the names of Hugging Face's `config.json`.

mod fields;
mod keys;
mod refused;

use crate::error::{Error, Result};
use fields::{Fields, real, refuse, size};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Gate activation of the feed-forward block.
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

/// Which of transformers' models a configuration is for: they share their weights' names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModelType {
    #[default]
    Llama,
    /// Llama with a sliding window.
    Mistral,
}

impl ModelType {
    const ALL: [Self; 2] = [Self::Llama, Self::Mistral];

    /// `model_type` and `architectures` as `config.json` has them.
    const fn names(self) -> [&'static str; 2] {
        match self {
            Self::Llama => ["llama", "LlamaForCausalLM"],
            Self::Mistral => ["mistral", "MistralForCausalLM"],
        }
    }
}

/// A validated Llama-shaped configuration: every field is resolved, every division checked.
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
    pub rope_theta: f64,
    pub tie_word_embeddings: bool,
    pub hidden_act: Activation,
    pub initializer_range: f64,
    /// A position sees at most this many of the latest positions, itself among them.
    pub sliding_window: Option<usize>,
    /// Attention scores are squashed into ± this by tanh. Not a field that transformers' Llama or
    /// Mistral know: they ignore it.
    pub attn_logit_softcapping: Option<f64>,
    /// The fields of the caller's `config.json` that tinyloom does not read (token ids, dtype
    /// notes, …), as JSON texts by name, kept so that `save` gives them back.
    pub extra: BTreeMap<String, String>,
}

/// Largest `head_dim` that the attention kernels hold in workgroup memory.
pub const MAX_HEAD_DIM: usize = 256;
/// Kernels index the elements of a tensor with `u32`, and signed offsets must not wrap either.
pub const MAX_TENSOR_ELEMENTS: u64 = i32::MAX as u64;

impl ModelConfig {
    /// Reads a Hugging Face `config.json` of model type `llama` or `mistral`, as transformers 4 and 5
    /// write it. Missing fields get the defaults of transformers' `LlamaConfig` or `MistralConfig`;
    /// whatever the file asks for and tinyloom lacks is refused by name, and so is a field whose
    /// name is misspelt. A text above a megabyte is refused unread.
    pub fn from_json(text: &str) -> Result<Self> {
        let mut fields = Fields::read(text)?;
        // First: another family has other names for its fields, and they are no slips.
        let model_type = model_type(&mut fields)?;
        let mistral = model_type == ModelType::Mistral;
        for written_anew in ["dtype", "torch_dtype", NOTE] {
            fields.drop(written_anew);
        }
        refused::refuse_unsupported(&fields)?;
        keys::refuse_near_misses(&fields)?;
        let hidden_size = fields.size("hidden_size", 4096, 1 << 20)?;
        let num_attention_heads = fields.size("num_attention_heads", 32, 1 << 16)?;
        let num_key_value_heads = fields
            .optional_size("num_key_value_heads", num_attention_heads)?
            .unwrap_or(if mistral { num_attention_heads.min(8) } else { num_attention_heads });
        let head_dim = head_dim(&mut fields, hidden_size, num_attention_heads)?;
        let config = Self {
            model_type,
            vocab_size: fields.size("vocab_size", 32_000, 1 << 24)?,
            hidden_size,
            intermediate_size: fields.size(
                "intermediate_size",
                if mistral { 14_336 } else { 11_008 },
                1 << 22,
            )?,
            num_hidden_layers: fields.size("num_hidden_layers", 32, 4096)?,
            num_attention_heads,
            num_key_value_heads,
            head_dim,
            max_position_embeddings: fields.size(
                "max_position_embeddings",
                if mistral { 131_072 } else { 2048 },
                1 << 24,
            )?,
            rms_norm_eps: fields.real("rms_norm_eps", 1e-6)?,
            rope_theta: rope_theta(&mut fields)?,
            tie_word_embeddings: fields.flag("tie_word_embeddings", false)?,
            hidden_act: hidden_act(&mut fields)?,
            initializer_range: fields.real("initializer_range", 0.02)?,
            sliding_window: sliding_window(&mut fields, model_type)?,
            attn_logit_softcapping: fields.optional_real("attn_logit_softcapping")?,
            extra: fields.rest(),
        };
        config.check()?;
        Ok(config)
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
        for (name, value, good, allowed) in [
            (
                "rms_norm_eps",
                self.rms_norm_eps,
                positive_f32(self.rms_norm_eps) && self.rms_norm_eps <= 1.0,
                "a number above 0 and at most 1",
            ),
            ("rope_theta", self.rope_theta, positive_f32(self.rope_theta), "a number above 0"),
            (
                "initializer_range",
                self.initializer_range,
                (0.0..=1.0).contains(&self.initializer_range),
                "a number from 0 to 1",
            ),
            (
                "attn_logit_softcapping",
                self.attn_logit_softcapping.unwrap_or(1.0),
                self.attn_logit_softcapping.is_none_or(positive_f32),
                "null or a number above 0",
            ),
        ] {
            if !good {
                return Err(refuse(name, &json!(value), allowed));
            }
        }
        let [hidden, heads, kv_heads, head_dim] =
            [self.hidden_size, heads, kv_heads, self.head_dim].map(|n| n as u64);
        for (what, elements) in [
            ("vocab_size × hidden_size", self.vocab_size as u64 * hidden),
            (
                "the query, key and value weights of a layer",
                (heads + 2 * kv_heads) * head_dim * hidden,
            ),
            ("hidden_size × 2 × intermediate_size", hidden * 2 * self.intermediate_size as u64),
        ] {
            if elements > MAX_TENSOR_ELEMENTS {
                return Err(Error::config(format!(
                    "{what} is {elements} elements; a tensor may have at most {MAX_TENSOR_ELEMENTS}"
                )));
            }
        }
        Ok(())
    }

    /// The text of `config.json`: loads in transformers 4 and 5 and gives back the fields that
    /// tinyloom does not read.
    pub fn to_json(&self) -> String {
        let mut map: BTreeMap<&str, Written> =
            self.extra.iter().map(|(name, text)| (name.as_str(), Written::kept(text))).collect();
        let mut write = |name, value| map.insert(name, Written::Own(value));
        let [model_type, architecture] = self.model_type.names();
        if self.model_type == ModelType::Mistral {
            write("sliding_window", json!(self.sliding_window));
        }
        if let Some(cap) = self.attn_logit_softcapping {
            write("attn_logit_softcapping", json!(cap));
            write(NOTE, json!(SOFT_CAP_NOTE));
        }
        for (name, value) in [
            ("model_type", json!(model_type)),
            ("architectures", json!([architecture])),
            ("vocab_size", json!(self.vocab_size)),
            ("hidden_size", json!(self.hidden_size)),
            ("intermediate_size", json!(self.intermediate_size)),
            ("num_hidden_layers", json!(self.num_hidden_layers)),
            ("num_attention_heads", json!(self.num_attention_heads)),
            ("num_key_value_heads", json!(self.num_key_value_heads)),
            ("head_dim", json!(self.head_dim)),
            ("max_position_embeddings", json!(self.max_position_embeddings)),
            ("rms_norm_eps", json!(self.rms_norm_eps)),
            // transformers 4 reads the first of the two, transformers 5 the second.
            ("rope_theta", json!(self.rope_theta)),
            ("rope_parameters", json!({ "rope_theta": self.rope_theta, "rope_type": "default" })),
            ("tie_word_embeddings", json!(self.tie_word_embeddings)),
            ("hidden_act", json!(self.hidden_act.name())),
            ("initializer_range", json!(self.initializer_range)),
            ("dtype", json!("float32")),
            ("torch_dtype", json!("float32")),
        ] {
            write(name, value);
        }
        let mut text = serde_json::to_string_pretty(&map).expect("a map of JSON values serialises");
        text.push('\n');
        text
    }

    /// Name and shape of every stored tensor, `[out, in]` row-major, with Hugging Face's names and
    /// in the order of the forward pass.
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let hidden = self.hidden_size;
        let (query, key_value) =
            (self.num_attention_heads * self.head_dim, self.num_key_value_heads * self.head_dim);
        let mut list =
            vec![("model.embed_tokens.weight".to_owned(), vec![self.vocab_size, hidden])];
        for layer in 0..self.num_hidden_layers {
            list.extend(
                [
                    ("input_layernorm", vec![hidden]),
                    ("self_attn.q_proj", vec![query, hidden]),
                    ("self_attn.k_proj", vec![key_value, hidden]),
                    ("self_attn.v_proj", vec![key_value, hidden]),
                    ("self_attn.o_proj", vec![hidden, query]),
                    ("post_attention_layernorm", vec![hidden]),
                    ("mlp.gate_proj", vec![self.intermediate_size, hidden]),
                    ("mlp.up_proj", vec![self.intermediate_size, hidden]),
                    ("mlp.down_proj", vec![hidden, self.intermediate_size]),
                ]
                .map(|(name, shape)| (format!("model.layers.{layer}.{name}.weight"), shape)),
            );
        }
        list.push(("model.norm.weight".to_owned(), vec![hidden]));
        if !self.tie_word_embeddings {
            list.push(("lm_head.weight".to_owned(), vec![self.vocab_size, hidden]));
        }
        list
    }

    /// Number of trained parameters; a tied embedding counts once.
    pub fn parameter_count(&self) -> u64 {
        self.tensors()
            .iter()
            .map(|(_, shape)| shape.iter().map(|&n| n as u64).product::<u64>())
            .sum()
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

/// A field for people who read a saved config.
const NOTE: &str = "tinyloom_note";
const SOFT_CAP_NOTE: &str =
    "transformers ignores attn_logit_softcapping in this model: it computes other logits";

fn model_type(fields: &mut Fields) -> Result<ModelType> {
    let found = match fields.take_set("model_type")? {
        None => ModelType::Llama,
        Some(value) => ModelType::ALL
            .into_iter()
            .find(|kind| value == kind.names()[0])
            .ok_or_else(|| refuse("model_type", &value, "\"llama\" or \"mistral\""))?,
    };
    let architecture = found.names()[1];
    match fields.take_set("architectures")? {
        Some(value) if value != json!([architecture]) => {
            Err(refuse("architectures", &value, &format!("[\"{architecture}\"]")))
        }
        _ => Ok(found),
    }
}

/// Mistral's window, 4,096 unless the field says another or `null`.
fn sliding_window(fields: &mut Fields, model_type: ModelType) -> Result<Option<usize>> {
    match model_type {
        ModelType::Llama => {
            fields.require_neutral(
                "sliding_window",
                |_| false,
                "absent, or model_type \"mistral\"",
            )?;
            Ok(None)
        }
        ModelType::Mistral => match fields.take("sliding_window")? {
            None => Ok(Some(4096)),
            Some(Value::Null) => Ok(None),
            Some(value) => size("sliding_window", &value, 1 << 24).map(Some),
        },
    }
}

fn head_dim(fields: &mut Fields, hidden: usize, heads: usize) -> Result<usize> {
    let allowed = format!("a multiple of 4 up to {MAX_HEAD_DIM}");
    let Some(value) = fields.take_set("head_dim")? else {
        if !hidden.is_multiple_of(heads) {
            return Err(Error::config(format!(
                "hidden_size ({hidden}) is not a multiple of num_attention_heads ({heads}): \
                 change one of them, or give head_dim"
            )));
        }
        let head_dim = hidden / heads;
        if !head_dim.is_multiple_of(4) || head_dim > MAX_HEAD_DIM {
            return Err(Error::config(format!(
                "head_dim, taken as hidden_size / num_attention_heads ({hidden} / {heads}), is \
                 {head_dim}; it must be {allowed}"
            )));
        }
        return Ok(head_dim);
    };
    size("head_dim", &value, MAX_HEAD_DIM)
        .ok()
        .filter(|n| n.is_multiple_of(4))
        .ok_or_else(|| refuse("head_dim", &value, &allowed))
}

/// The RoPE base from any of the three places where transformers has kept it: `rope_theta`
/// (version 4), `rope_parameters.rope_theta` (version 5), `rope_scaling.rope_theta`.
fn rope_theta(fields: &mut Fields) -> Result<f64> {
    let mut theta = fields.optional_real("rope_theta")?;
    for name in ["rope_parameters", "rope_scaling"] {
        let Some(value) = fields.take_set(name)? else { continue };
        let Value::Object(rope) = &value else {
            return Err(refuse(name, &value, "null or an object with rope_type \"default\""));
        };
        for key in ["rope_type", "type"] {
            match rope.get(key) {
                Some(kind) if !kind.is_null() && kind != "default" => {
                    return Err(refuse(
                        &format!("{name}.{key}"),
                        kind,
                        "\"default\": tinyloom has no other RoPE type",
                    ));
                }
                _ => {}
            }
        }
        let typed =
            ["rope_type", "type"].iter().any(|key| rope.get(*key).is_some_and(|v| !v.is_null()));
        let known =
            |key: &str| ["rope_type", "type", "rope_theta", "partial_rotary_factor"].contains(&key);
        if let Some((key, value)) =
            rope.iter().find(|(key, v)| !typed && !known(key) && !v.is_null())
        {
            return Err(refuse(
                &format!("{name}.{key}"),
                value,
                "absent where no rope_type is given",
            ));
        }
        if let Some(factor) = rope.get("partial_rotary_factor")
            && !factor.is_null()
            && !refused::ONE(factor)
        {
            let name = format!("{name}.partial_rotary_factor");
            return Err(refuse(&name, factor, "1: tinyloom rotates whole heads"));
        }
        if let Some(inner) = rope.get("rope_theta").filter(|v| !v.is_null()) {
            let inner = real(&format!("{name}.rope_theta"), inner)?;
            if let Some(outer) = theta.filter(|&outer| outer != inner) {
                return Err(Error::config(format!(
                    "config fields rope_theta ({outer}) and {name}.rope_theta ({inner}) \
                     disagree: keep one"
                )));
            }
            theta = Some(inner);
        }
    }
    Ok(theta.unwrap_or(10_000.0))
}

fn hidden_act(fields: &mut Fields) -> Result<Activation> {
    let Some(value) = fields.take("hidden_act")? else { return Ok(Activation::Silu) };
    value
        .as_str()
        .and_then(Activation::from_name)
        .ok_or_else(|| refuse("hidden_act", &value, "\"silu\", \"gelu\" or \"gelu_pytorch_tanh\""))
}

#[cfg(test)]
mod tests;
