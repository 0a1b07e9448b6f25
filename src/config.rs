//! Model configuration with the names of Hugging Face's `config.json`.

mod keys;

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

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
    /// notes, …), kept so that `save` gives them back.
    pub extra: Map<String, Value>,
}

/// Largest `head_dim` that the attention kernels hold in workgroup memory.
pub const MAX_HEAD_DIM: usize = 256;
/// Kernels index the elements of a tensor with `u32`, and signed offsets must not wrap either.
pub const MAX_TENSOR_ELEMENTS: u64 = i32::MAX as u64;

/// The object of `config.json` while it is read: what is taken leaves the map, the rest is `extra`.
struct Fields(Map<String, Value>);

impl Fields {
    fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name)
    }

    /// `None` stands for both a missing field and `null`.
    fn take_set(&mut self, name: &str) -> Option<Value> {
        self.take(name).filter(|value| !value.is_null())
    }

    fn size(&mut self, name: &str, default: usize, max: usize) -> Result<usize> {
        self.take(name).map_or(Ok(default), |value| size(name, &value, max))
    }

    fn optional_size(&mut self, name: &str, max: usize) -> Result<Option<usize>> {
        self.take_set(name).map(|value| size(name, &value, max)).transpose()
    }

    fn real(&mut self, name: &str, default: f64) -> Result<f64> {
        self.take(name).map_or(Ok(default), |value| real(name, &value))
    }

    fn flag(&mut self, name: &str, default: bool) -> Result<bool> {
        self.take(name).map_or(Ok(default), |value| {
            value.as_bool().ok_or_else(|| refuse(name, &value, "true or false"))
        })
    }

    /// A field that may stay as it is when it asks for nothing tinyloom lacks.
    fn require_neutral(&self, name: &str, neutral: &[Value], allowed: &str) -> Result<()> {
        match self.0.get(name) {
            Some(value) if !value.is_null() && !neutral.contains(value) => {
                Err(refuse(name, value, allowed))
            }
            _ => Ok(()),
        }
    }
}

fn refuse(name: &str, value: &Value, allowed: &str) -> Error {
    let mut text = value.to_string();
    if let Some((cut, _)) = text.char_indices().nth(200) {
        text.truncate(cut);
        text.push('…');
    }
    Error::config(format!("config field {name} is {text}; it must be {allowed}"))
}

fn size(name: &str, value: &Value, max: usize) -> Result<usize> {
    value
        .as_u64()
        .filter(|&n| 1 <= n && n <= max as u64)
        .map(|n| n as usize)
        .ok_or_else(|| refuse(name, value, &format!("an integer from 1 to {max}")))
}

fn real(name: &str, value: &Value) -> Result<f64> {
    value.as_f64().filter(|x| x.is_finite()).ok_or_else(|| refuse(name, value, "a finite number"))
}

impl ModelConfig {
    /// Reads a Hugging Face `config.json` of model type `llama` or `mistral`, as transformers 4 and 5
    /// write it. Missing fields get the defaults of transformers' `LlamaConfig` or `MistralConfig`;
    /// whatever the file asks for and tinyloom lacks is refused by name, and so is a field whose
    /// name is misspelt.
    pub fn from_json(text: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(text)
            .map_err(|e| Error::config(format!("the config is not valid JSON: {e}")))?;
        let Value::Object(map) = value else {
            return Err(Error::config(
                "the config must be a JSON object with the fields of config.json",
            ));
        };
        keys::refuse_near_misses(&map)?;
        let mut fields = Fields(map);
        let model_type = model_type(&mut fields)?;
        let mistral = model_type == ModelType::Mistral;
        refuse_unsupported(&mut fields)?;
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
            attn_logit_softcapping: fields
                .take_set("attn_logit_softcapping")
                .map(|value| real("attn_logit_softcapping", &value))
                .transpose()?,
            extra: fields.0,
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
        let mut map = self.extra.clone();
        let [model_type, architecture] = self.model_type.names();
        if self.model_type == ModelType::Mistral {
            map.insert("sliding_window".into(), json!(self.sliding_window));
        }
        if let Some(cap) = self.attn_logit_softcapping {
            map.insert("attn_logit_softcapping".into(), json!(cap));
            map.insert(NOTE.into(), json!(SOFT_CAP_NOTE));
        }
        let Value::Object(own) = json!({
            "model_type": model_type,
            "architectures": [architecture],
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_hidden_layers,
            "num_attention_heads": self.num_attention_heads,
            "num_key_value_heads": self.num_key_value_heads,
            "head_dim": self.head_dim,
            "max_position_embeddings": self.max_position_embeddings,
            "rms_norm_eps": self.rms_norm_eps,
            // transformers 4 reads the first of the two, transformers 5 the second.
            "rope_theta": self.rope_theta,
            "rope_parameters": { "rope_theta": self.rope_theta, "rope_type": "default" },
            "tie_word_embeddings": self.tie_word_embeddings,
            "hidden_act": self.hidden_act.name(),
            "initializer_range": self.initializer_range,
            "dtype": "float32",
            "torch_dtype": "float32",
        }) else {
            unreachable!("the literal above is an object")
        };
        map.extend(own);
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

/// A field for people who read a saved config.
const NOTE: &str = "tinyloom_note";
const SOFT_CAP_NOTE: &str =
    "transformers ignores attn_logit_softcapping in this model: it computes other logits";

fn model_type(fields: &mut Fields) -> Result<ModelType> {
    let found = match fields.take_set("model_type") {
        None => ModelType::Llama,
        Some(value) => ModelType::ALL
            .into_iter()
            .find(|kind| value == kind.names()[0])
            .ok_or_else(|| refuse("model_type", &value, "\"llama\" or \"mistral\""))?,
    };
    let architecture = found.names()[1];
    match fields.take_set("architectures") {
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
            fields.require_neutral("sliding_window", &[], "absent, or model_type \"mistral\"")?;
            Ok(None)
        }
        ModelType::Mistral => match fields.take("sliding_window") {
            None => Ok(Some(4096)),
            Some(Value::Null) => Ok(None),
            Some(value) => size("sliding_window", &value, 1 << 24).map(Some),
        },
    }
}

/// Refuses whatever would change the model and has no kernel here, and drops the fields that
/// `to_json` writes anew.
fn refuse_unsupported(fields: &mut Fields) -> Result<()> {
    for written_anew in ["dtype", "torch_dtype", NOTE] {
        fields.take(written_anew);
    }
    let off = [json!(false)];
    fields.require_neutral("attention_bias", &off, "false: tinyloom has no biases")?;
    fields.require_neutral("mlp_bias", &off, "false: tinyloom has no biases")?;
    let zero = [json!(0), json!(0.0)];
    fields.require_neutral("attention_dropout", &zero, "0: tinyloom has no attention dropout")?;
    let one = [json!(1), json!(1.0)];
    fields.require_neutral("pretraining_tp", &one, "1: tinyloom has no tensor-parallel slicing")?;
    fields.require_neutral("partial_rotary_factor", &one, "1: tinyloom rotates whole heads")?;
    fields.require_neutral(
        "quantization_config",
        &[],
        "absent: tinyloom reads F32, F16 and BF16 weights",
    )
}

fn head_dim(fields: &mut Fields, hidden: usize, heads: usize) -> Result<usize> {
    let allowed = format!("a multiple of 4 up to {MAX_HEAD_DIM}");
    let Some(value) = fields.take_set("head_dim") else {
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
    let mut theta = fields.take_set("rope_theta").map(|v| real("rope_theta", &v)).transpose()?;
    for name in ["rope_parameters", "rope_scaling"] {
        let Some(value) = fields.take_set(name) else { continue };
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
        Fields(rope.clone()).require_neutral(
            "partial_rotary_factor",
            &[json!(1), json!(1.0)],
            "1: tinyloom rotates whole heads",
        )?;
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
    let Some(value) = fields.take("hidden_act") else { return Ok(Activation::Silu) };
    value
        .as_str()
        .and_then(Activation::from_name)
        .ok_or_else(|| refuse("hidden_act", &value, "\"silu\", \"gelu\" or \"gelu_pytorch_tanh\""))
}

#[cfg(test)]
mod tests;
