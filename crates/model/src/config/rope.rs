//! The rotary embedding as `config.json` describes it, in any of the places where transformers has
//! kept it: `rope_theta` and `rope_scaling` (version 4), `rope_parameters` (version 5).

use super::field::{Field, Written};
use super::fields::{Fields, real, refuse, size};
use super::refused;
use super::slots::{LOCAL_THETA, ROPE, ROPE_PARAMETERS, ROPE_SCALING, ROTARY_SHARE};
use super::{LayerType, ModelConfig};
use crate::arch::Family;
use crate::error::{Error, Result};
use serde_json::{Map, Value, json};

/// How the rotary embedding reaches positions beyond those of the first training.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum RopeScaling {
    #[default]
    Default,
    /// Positions divided by a factor (Chen et al., arXiv:2306.15595).
    Linear { factor: f64 },
    /// Llama 3.1's: slow pairs divided by a factor, fast ones as they are, smoothly between.
    Llama3 { factor: f64, low_freq_factor: f64, high_freq_factor: f64, original: usize },
    /// YaRN (Peng et al., arXiv:2309.00071).
    Yarn {
        factor: f64,
        /// Factor on cosines and sines.
        attention_factor: f64,
        beta_fast: f64,
        beta_slow: f64,
        original: usize,
        truncate: bool,
    },
}

/// Base and scaling of the rotary embedding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeConfig {
    pub theta: f64,
    pub scaling: RopeScaling,
}

impl Default for RopeConfig {
    fn default() -> Self {
        Self { theta: 10_000.0, scaling: RopeScaling::Default }
    }
}

const PLACES: [&str; 2] = [ROPE_PARAMETERS.name, ROPE_SCALING.name];
/// Keys of the first place in version 5, where layers with a window have a rotary embedding of their own.
const FULL: &str = LayerType::Full.name();
const SLIDING: &str = LayerType::Sliding.name();
const ALLOWED: &str = "\"default\", \"linear\", \"llama3\" or \"yarn\"";

/// Takes the fields of the rotary embedding into a config that has its positions.
pub(super) fn read(field: &Field, fields: &mut Fields<'_>, config: &mut ModelConfig) -> Result<()> {
    let (positions, mut found) =
        (config.max_position_embeddings, Found::outside(fields, *field, config.family)?);
    for place in PLACES {
        let Some(value) = fields.take_set(place)? else { continue };
        let (place, value) = if found.local_field.is_some() && place == PLACES[0] {
            ("rope_parameters.full_attention", found.sliding(value, positions)?)
        } else {
            (place, value)
        };
        found.whole(Own::of(place, value)?, positions)?;
    }
    found.into(config);
    Ok(())
}

/// What the fields read so far say; none: nothing yet.
struct Found {
    /// The base outside the places.
    field: Field,
    /// That of layers with a window, where these have their own.
    local_field: Option<Field>,
    /// The share of each head that rotates, where a family has that.
    share_field: Option<Field>,
    theta: Option<f64>,
    local: Option<f64>,
    share: Option<f64>,
    scaling: Option<RopeScaling>,
}

impl Found {
    /// Takes the fields outside the places.
    fn outside(fields: &mut Fields<'_>, field: Field, family: &Family) -> Result<Self> {
        let (local_field, share_field) = (family.find(&LOCAL_THETA), family.find(&ROTARY_SHARE));
        let mut theta = fields.optional_real(field.name)?;
        let mut share = None;
        if let Some(own) = share_field {
            // A file of version 4 may have both names.
            let again = fields.optional_real(ROPE.name)?;
            theta = agreed([field.name, ROPE.name], theta, again)?;
            let names = [own.name, ROTARY_SHARE.name];
            let [first, second] = names;
            share = agreed(names, fields.optional_real(first)?, fields.optional_real(second)?)?;
        }
        let local = match local_field {
            Some(own) => fields.optional_real(own.name)?,
            None => None,
        };
        Ok(Self { field, local_field, share_field, theta, local, share, scaling: None })
    }

    /// Reads the object of layers with a window in the first place of a family with two rotary embeddings,
    /// and gives that of the others.
    fn sliding(&mut self, mut kinds: Value, positions: usize) -> Result<Value> {
        let [full, sliding] =
            [FULL, SLIDING].map(|kind| kinds.get_mut(kind).map_or(Value::Null, Value::take));
        let place = "rope_parameters.sliding_attention";
        let mut own = Own::of(place, sliding)?;
        refuse_others(&kinds)?;
        self.local = own.agreeing(ROPE.name, LOCAL_THETA.name, self.local)?;
        if own.scaling(positions)? != RopeScaling::Default {
            return Err(Error::config(format!("config field {place} must be unscaled")));
        }
        Ok(full)
    }

    /// Reads the object of all layers, or of those without a window.
    fn whole(&mut self, mut own: Own, positions: usize) -> Result<()> {
        self.theta = own.agreeing(ROPE.name, self.field.name, self.theta)?;
        if let Some(field) = self.share_field {
            self.share = own.agreeing(ROTARY_SHARE.name, field.name, self.share)?;
        }
        let read = own.scaling(positions)?;
        if let Some(other) = self.scaling.filter(|other| *other != read) {
            let [parameters, scaling] = [other, read].map(|scaling| object(scaling.fields()));
            return Err(Error::config(format!(
                "config fields rope_parameters ({parameters}) and rope_scaling ({scaling}) disagree: keep one"
            )));
        }
        self.scaling = Some(read);
        Ok(())
    }

    /// Leaves the rotary embedding in a config, with the family's numbers where no field gives one.
    fn into(self, config: &mut ModelConfig) {
        let usual = |field: Field| field.missing.real();
        let theta = self.theta.or(usual(self.field)).unwrap_or(RopeConfig::default().theta);
        config.rope = RopeConfig { theta, scaling: self.scaling.unwrap_or_default() };
        config.rope_local_base_freq = self.local.or(self.local_field.and_then(usual));
        config.partial_rotary_factor =
            self.share.or(self.share_field.and_then(usual)).unwrap_or(1.0);
    }
}

/// What two fields say, which must be the same.
fn agreed([first, second]: [&str; 2], one: Option<f64>, other: Option<f64>) -> Result<Option<f64>> {
    match (one, other) {
        (Some(one), Some(other)) if one != other => Err(Error::config(format!(
            "config fields {first} ({one}) and {second} ({other}) disagree: keep one"
        ))),
        _ => Ok(other.or(one)),
    }
}

/// Refuses what stands beside both kinds of layers, which have been taken.
fn refuse_others(value: &Value) -> Result<()> {
    let other = value.as_object().and_then(|map| map.iter().find(|(_, value)| !value.is_null()));
    other.map_or(Ok(()), |(key, value)| {
        let allowed = "absent beside full_attention and sliding_attention";
        Err(refuse(&format!("rope_parameters.{key}"), value, allowed))
    })
}

/// The object in one of the places, while it is read.
struct Own {
    place: &'static str,
    map: Map<String, Value>,
}

impl Own {
    fn of(place: &'static str, value: Value) -> Result<Self> {
        match value {
            Value::Object(map) => Ok(Self { place, map }),
            _ => Err(refuse(place, &value, &format!("an object with rope_type {ALLOWED}"))),
        }
    }

    /// What errors call a key of the object.
    fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.place)
    }

    /// A number, which the field of this name may also give.
    fn agreeing(&mut self, key: &str, name: &str, outer: Option<f64>) -> Result<Option<f64>> {
        let inner = self.real(key)?;
        agreed([name, &self.name(key)], outer, inner)
    }

    fn take(&mut self, key: &str) -> Option<Value> {
        self.map.remove(key).filter(|value| !value.is_null())
    }

    fn real(&mut self, key: &str) -> Result<Option<f64>> {
        let name = self.name(key);
        self.take(key).map(|value| real(&name, &value)).transpose()
    }

    fn positive(&mut self, key: &str, default: Option<f64>) -> Result<f64> {
        match self.real(key)?.or(default) {
            Some(x) if x > 0.0 && (x as f32).is_normal() => Ok(x),
            Some(x) => Err(refuse(&self.name(key), &json!(x), "above 0 and a number of f32")),
            None => Err(Error::config(format!("config field {} is missing", self.name(key)))),
        }
    }

    /// Positions of the first training.
    fn original(&mut self, positions: usize) -> Result<usize> {
        let key = "original_max_position_embeddings";
        let name = self.name(key);
        self.take(key).map_or(Ok(positions), |value| size(&name, &value, 1 << 24))
    }

    fn scaling(mut self, positions: usize) -> Result<RopeScaling> {
        if let Some(factor) = self.take("partial_rotary_factor")
            && !refused::ONE(&factor)
        {
            let name = self.name("partial_rotary_factor");
            return Err(refuse(&name, &factor, refused::WHOLE_HEADS));
        }
        let kind = self.kind()?;
        let scaling = match kind.as_deref() {
            // A default type has no parameters that count, whatever stands beside it.
            Some("default") => return Ok(RopeScaling::Default),
            None => RopeScaling::Default,
            Some("linear") => RopeScaling::Linear { factor: self.positive("factor", None)? },
            Some("llama3") => self.llama3(positions)?,
            Some("yarn") => self.yarn(positions)?,
            Some(other) => {
                let name = self.name("rope_type");
                return Err(refuse(&name, &json!(other), ALLOWED));
            }
        };
        match self.map.iter().find(|(_, value)| !value.is_null()) {
            None => Ok(scaling),
            Some((key, value)) => {
                let name = self.name(key);
                let allowed = match kind {
                    None => "absent where no rope_type is given".to_owned(),
                    Some(kind) => format!("absent: tinyloom's {kind} RoPE does not read it"),
                };
                Err(refuse(&name, value, &allowed))
            }
        }
    }

    /// `rope_type`, or `type` as older files have it.
    fn kind(&mut self) -> Result<Option<String>> {
        let mut found: Option<String> = None;
        for key in ["rope_type", "type"] {
            let Some(value) = self.take(key) else { continue };
            let name = self.name(key);
            let kind = value.as_str().ok_or_else(|| refuse(&name, &value, ALLOWED))?;
            if found.as_deref().is_some_and(|other| other != kind) {
                return Err(refuse(&name, &value, "the same as rope_type"));
            }
            found = Some(kind.to_owned());
        }
        Ok(found)
    }

    fn llama3(&mut self, positions: usize) -> Result<RopeScaling> {
        let (low, high) =
            (self.positive("low_freq_factor", None)?, self.positive("high_freq_factor", None)?);
        if low >= high {
            let name = self.name("low_freq_factor");
            return Err(refuse(&name, &json!(low), &format!("below high_freq_factor, {high}")));
        }
        Ok(RopeScaling::Llama3 {
            factor: self.positive("factor", None)?,
            low_freq_factor: low,
            high_freq_factor: high,
            original: self.original(positions)?,
        })
    }

    fn yarn(&mut self, positions: usize) -> Result<RopeScaling> {
        let original = self.original(positions)?;
        let ratio = positions as f64 / original as f64;
        let factor = self.positive("factor", Some(ratio))?;
        let usual = if factor <= 1.0 { 1.0 } else { 0.1 * libm::log(factor) + 1.0 };
        let truncate = self.take("truncate").unwrap_or(Value::Bool(true));
        Ok(RopeScaling::Yarn {
            factor,
            attention_factor: self.positive("attention_factor", Some(usual))?,
            beta_fast: self.positive("beta_fast", Some(32.0))?,
            beta_slow: self.positive("beta_slow", Some(1.0))?,
            original,
            truncate: truncate
                .as_bool()
                .ok_or_else(|| refuse(&self.name("truncate"), &truncate, "true or false"))?,
        })
    }
}

/// The fields as transformers 4 and 5 read them.
pub(super) fn write(field: &Field, config: &ModelConfig) -> Written {
    let RopeConfig { theta, scaling } = config.rope;
    let mut fields = vec![(field.name, json!(theta))];
    if scaling != RopeScaling::Default {
        fields.push((PLACES[1], object(scaling.fields())));
    }
    let mut parameters = config.rope.parameters();
    if let Some(share) = config.family.find(&ROTARY_SHARE) {
        fields.push((share.name, json!(config.partial_rotary_factor)));
        parameters.push((ROTARY_SHARE.name, json!(config.partial_rotary_factor)));
    }
    let mut parameters = object(parameters);
    if let Some(theta) = config.rope_local_base_freq {
        fields.push((LOCAL_THETA.name, json!(theta)));
        let other = RopeConfig { theta, scaling: RopeScaling::Default }.parameters();
        parameters = object(vec![(FULL, parameters), (SLIDING, object(other))]);
    }
    fields.push((PLACES[0], parameters));
    fields
}

impl RopeConfig {
    fn parameters(&self) -> Vec<(&'static str, Value)> {
        let mut fields = self.scaling.fields();
        fields.push(("rope_theta", json!(self.theta)));
        fields
    }
}

fn object(fields: Vec<(&str, Value)>) -> Value {
    let mut map = Map::new();
    for (name, value) in fields {
        map.insert(name.into(), value);
    }
    Value::Object(map)
}

impl RopeScaling {
    fn fields(&self) -> Vec<(&'static str, Value)> {
        let original = "original_max_position_embeddings";
        let (kind, mut fields) = match *self {
            Self::Default => ("default", vec![]),
            Self::Linear { factor } => ("linear", vec![("factor", json!(factor))]),
            Self::Llama3 { factor, low_freq_factor, high_freq_factor, original: positions } => (
                "llama3",
                vec![
                    ("factor", json!(factor)),
                    ("low_freq_factor", json!(low_freq_factor)),
                    ("high_freq_factor", json!(high_freq_factor)),
                    (original, json!(positions)),
                ],
            ),
            Self::Yarn {
                factor,
                attention_factor,
                beta_fast,
                beta_slow,
                original: positions,
                truncate,
            } => (
                "yarn",
                vec![
                    ("factor", json!(factor)),
                    ("attention_factor", json!(attention_factor)),
                    ("beta_fast", json!(beta_fast)),
                    ("beta_slow", json!(beta_slow)),
                    (original, json!(positions)),
                    ("truncate", json!(truncate)),
                ],
            ),
        };
        fields.push(("rope_type", json!(kind)));
        fields
    }
}
