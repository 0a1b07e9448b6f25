//! The rotary embedding as `config.json` describes it, in any of the places where transformers has
//! kept it: `rope_theta` and `rope_scaling` (version 4), `rope_parameters` (version 5).

use super::field::{Field, Written};
use super::fields::{Fields, real, refuse, size};
use super::refused;
use super::slots::{
    LOCAL_THETA, ORIGINAL_POSITIONS, ROPE, ROPE_PARAMETERS, ROPE_SCALING, ROTARY_SHARE,
};
use super::{LayerType, ModelConfig};
use crate::arch::Family;
use crate::error::{Error, Result};
use serde_json::{Map, Value, json};

/// How the rotary embedding reaches positions beyond those of the first training.
#[derive(Clone, Debug, Default, PartialEq)]
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
    /// A base that grows with a text beyond the model's positions, which no text passes here: none.
    Dynamic { factor: f64 },
    /// LongRoPE (Ding et al., arXiv:2402.13753): each pair has a divisor, and another one in texts of more than
    /// `original` tokens.
    LongRope {
        short: Vec<f64>,
        long: Vec<f64>,
        /// Factor on cosines and sines.
        attention_factor: f64,
        original: usize,
    },
}

/// Base and scaling of the rotary embedding.
#[derive(Clone, Debug, PartialEq)]
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
const ALLOWED: &str = "\"default\", \"linear\", \"dynamic\", \"llama3\", \"yarn\" or \"longrope\"";
/// Keys that transformers knows of one type or another, and reads of no other.
const OF_TYPES: &str = "attention_factor attn_factor beta_fast beta_slow extrapolation_factor factor finetuned \
    high_freq_factor long_factor low_freq_factor mscale mscale_all_dim original_max_position_embeddings short_factor \
    truncate";
const ORIGINAL: &str = ORIGINAL_POSITIONS.name;

/// Takes the fields of the rotary embedding into a config that has its positions.
pub(super) fn read(field: &Field, fields: &mut Fields<'_>, config: &mut ModelConfig) -> Result<()> {
    let mut found = Found::outside(fields, *field, config)?;
    for place in PLACES {
        let Some(value) = fields.take_set(place)? else { continue };
        let (place, value) = if found.local_field.is_some() && place == PLACES[0] {
            ("rope_parameters.full_attention", found.sliding(value)?)
        } else {
            (place, value)
        };
        found.whole(found.own(place, value)?)?;
    }
    found.into(config);
    Ok(())
}

/// What the fields read so far say; none: nothing yet.
struct Found {
    family: &'static Family,
    /// The model's positions, and those of its first training where a field outside the places has them.
    positions: usize,
    original: Option<usize>,
    /// The base outside the places.
    field: Field,
    /// The field for layers with a window, where these have their own base.
    local_field: Option<Field>,
    /// The share of each head that rotates, where a family has that.
    share_field: Option<Field>,
    theta: Option<f64>,
    local: Option<f64>,
    local_scaling: RopeScaling,
    share: Option<f64>,
    scaling: Option<RopeScaling>,
}

impl Found {
    /// Takes the fields outside the places.
    fn outside(fields: &mut Fields<'_>, field: Field, config: &ModelConfig) -> Result<Self> {
        let family = config.family;
        let original = match fields.peek(ORIGINAL)? {
            Value::Null => family.find(&ORIGINAL_POSITIONS).and_then(|own| own.missing.size()),
            value => Some(size(ORIGINAL, &value, 1 << 24)?),
        };
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
        Ok(Self {
            family,
            positions: config.max_position_embeddings,
            original,
            field,
            local_field,
            share_field,
            theta,
            local,
            local_scaling: RopeScaling::Default,
            share,
            scaling: None,
        })
    }

    /// Reads the object of layers with a window in the first place of a family with two rotary embeddings,
    /// and gives that of the others.
    fn sliding(&mut self, mut kinds: Value) -> Result<Value> {
        let [full, sliding] =
            [FULL, SLIDING].map(|kind| kinds.get_mut(kind).map_or(Value::Null, Value::take));
        let place = "rope_parameters.sliding_attention";
        let mut own = self.own(place, sliding)?;
        refuse_others(&kinds)?;
        self.local = own.agreeing(ROPE.name, LOCAL_THETA.name, self.local)?;
        self.local_scaling = own.scaling()?;
        Ok(full)
    }

    fn own(&self, place: &'static str, value: Value) -> Result<Own> {
        let Value::Object(map) = value else {
            return Err(refuse(place, &value, &format!("an object with rope_type {ALLOWED}")));
        };
        // Transformers lets the field outside count only where all layers turn alike.
        let nested = place.contains('.');
        let original = self.original.filter(|_| !nested);
        Ok(Own { place, map, family: self.family, positions: self.positions, original, nested })
    }

    /// Reads the object of all layers, or of those without a window.
    fn whole(&mut self, mut own: Own) -> Result<()> {
        self.theta = own.agreeing(ROPE.name, self.field.name, self.theta)?;
        if let Some(field) = self.share_field {
            self.share = own.agreeing(ROTARY_SHARE.name, field.name, self.share)?;
        }
        let read = own.scaling()?;
        if let Some(other) = self.scaling.as_ref().filter(|other| **other != read) {
            let [parameters, scaling] = [other, &read].map(|scaling| object(scaling.fields()));
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
        let local = self.local.or(self.local_field.and_then(usual));
        let scaling = self.local_scaling;
        config.rope_local = local.map(|theta| RopeConfig { theta, scaling });
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
    family: &'static Family,
    positions: usize,
    original: Option<usize>,
    /// Whether this is for the layers of one kind.
    nested: bool,
}

impl Own {
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

    /// A number that is set and not zero: transformers takes these two for one.
    fn nonzero(&mut self, key: &str) -> Result<Option<f64>> {
        Ok(self.real(key)?.filter(|x| *x != 0.0))
    }

    /// Positions of the first training.
    fn original(&mut self) -> Result<usize> {
        let (name, own) = (self.name(ORIGINAL), self.take(ORIGINAL));
        let own = own.map(|value| size(&name, &value, 1 << 24)).transpose()?;
        Ok(self.original.or(own).unwrap_or(self.positions))
    }

    /// A divisor for each pair.
    fn divisors(&mut self, key: &str) -> Result<Vec<f64>> {
        let (name, value) = (self.name(key), self.take(key).unwrap_or_default());
        let list = value.as_array().filter(|list| !list.is_empty());
        let good = |x: &f64| *x > 0.0 && (*x as f32).is_normal();
        let read = |list: &Vec<Value>| list.iter().map(|x| x.as_f64().filter(good)).collect();
        let allowed = "a list of numbers above 0, one for each pair of elements that turn";
        list.and_then(read).ok_or_else(|| refuse(&name, &value, allowed))
    }

    fn scaling(mut self) -> Result<RopeScaling> {
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
            Some("dynamic") => RopeScaling::Dynamic { factor: self.positive("factor", None)? },
            Some("llama3") => self.llama3()?,
            Some("yarn") => self.yarn()?,
            Some("longrope") => self.longrope()?,
            Some(other) => {
                let name = self.name("rope_type");
                return Err(refuse(&name, &json!(other), ALLOWED));
            }
        };
        let ignored = |key: &str| kind.is_some() && OF_TYPES.split_whitespace().any(|of| of == key);
        match self.map.iter().find(|(key, value)| !value.is_null() && !ignored(key)) {
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
        // Phi-3's first files have these names for it.
        if self.family.has(&ORIGINAL_POSITIONS) && matches!(found.as_deref(), Some("su" | "yarn")) {
            found = Some("longrope".into());
        }
        Ok(found)
    }

    fn llama3(&mut self) -> Result<RopeScaling> {
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
            original: self.original()?,
        })
    }

    fn yarn(&mut self) -> Result<RopeScaling> {
        let original = self.original()?;
        let ratio = self.positions as f64 / original as f64;
        let factor = self.positive("factor", Some(ratio))?;
        let magnitude =
            |scale: f64| if factor <= 1.0 { 1.0 } else { 0.1 * scale * libm::log(factor) + 1.0 };
        let usual = match (self.nonzero("mscale")?, self.nonzero("mscale_all_dim")?) {
            (Some(scale), Some(all)) => magnitude(scale) / magnitude(all),
            _ => magnitude(1.0),
        };
        let truncate = self.take("truncate").unwrap_or(Value::Bool(true));
        let nested = self.nested;
        let read = |flag: &bool| *flag || !nested;
        Ok(RopeScaling::Yarn {
            factor,
            attention_factor: self.positive("attention_factor", Some(usual))?,
            beta_fast: self.nonzero("beta_fast")?.unwrap_or(32.0),
            beta_slow: self.nonzero("beta_slow")?.unwrap_or(1.0),
            original,
            truncate: truncate.as_bool().filter(read).ok_or_else(|| {
                let allowed = if nested { "true in here" } else { "true or false" };
                refuse(&self.name("truncate"), &truncate, allowed)
            })?,
        })
    }

    fn longrope(&mut self) -> Result<RopeScaling> {
        let original = self.original()?;
        let factor = self.positive("factor", Some(self.positions as f64 / original as f64))?;
        let usual = if factor <= 1.0 {
            1.0
        } else {
            libm::sqrt(1.0 + libm::log(factor) / libm::log(original as f64))
        };
        Ok(RopeScaling::LongRope {
            short: self.divisors("short_factor")?,
            long: self.divisors("long_factor")?,
            attention_factor: self.positive("attention_factor", Some(usual))?,
            original,
        })
    }
}

/// The fields as transformers 4 and 5 read them.
pub(super) fn write(field: &Field, config: &ModelConfig) -> Written {
    let RopeConfig { theta, scaling } = &config.rope;
    let mut fields = vec![(field.name, json!(theta))];
    if *scaling != RopeScaling::Default {
        fields.push((PLACES[1], object(scaling.fields())));
    }
    if let RopeScaling::LongRope { original, .. } = scaling {
        // Phi-3 reads it there alone.
        fields.push((ORIGINAL, json!(original)));
    }
    let mut parameters = config.rope.parameters();
    if let Some(share) = config.family.find(&ROTARY_SHARE) {
        fields.push((share.name, json!(config.partial_rotary_factor)));
        parameters.push((ROTARY_SHARE.name, json!(config.partial_rotary_factor)));
    }
    let mut parameters = object(parameters);
    if let Some(local) = &config.rope_local {
        fields.push((LOCAL_THETA.name, json!(local.theta)));
        parameters = object(vec![(FULL, parameters), (SLIDING, object(local.parameters()))]);
    }
    fields.push((PLACES[0], parameters));
    fields
}

impl RopeConfig {
    /// Most tokens of a text with the angles of short ones; none: all texts turn alike.
    pub const fn short_tokens(&self) -> Option<usize> {
        match self.scaling {
            RopeScaling::LongRope { original, .. } => Some(original),
            _ => None,
        }
    }

    /// Whether there are as many divisors as rotated pairs.
    pub(super) fn check(&self, dims: usize) -> Result<()> {
        let RopeScaling::LongRope { short, long, .. } = &self.scaling else { return Ok(()) };
        for (key, list) in [("short_factor", short), ("long_factor", long)] {
            if list.len() != dims / 2 {
                return Err(Error::config(format!(
                    "config field rope_parameters.{key} has {} numbers; it must have one for each of the {} pairs of \
                     elements that turn in a head",
                    list.len(),
                    dims / 2
                )));
            }
        }
        Ok(())
    }

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
        let (kind, mut fields) = match self {
            Self::Default => ("default", vec![]),
            Self::Dynamic { factor } => ("dynamic", vec![("factor", json!(factor))]),
            Self::LongRope { short, long, attention_factor, original } => (
                "longrope",
                vec![
                    ("short_factor", json!(short)),
                    ("long_factor", json!(long)),
                    ("attention_factor", json!(attention_factor)),
                    (ORIGINAL, json!(original)),
                ],
            ),
            Self::Linear { factor } => ("linear", vec![("factor", json!(factor))]),
            Self::Llama3 { factor, low_freq_factor, high_freq_factor, original: positions } => (
                "llama3",
                vec![
                    ("factor", json!(factor)),
                    ("low_freq_factor", json!(low_freq_factor)),
                    ("high_freq_factor", json!(high_freq_factor)),
                    (ORIGINAL, json!(positions)),
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
                    (ORIGINAL, json!(positions)),
                    ("truncate", json!(truncate)),
                ],
            ),
        };
        fields.push(("rope_type", json!(kind)));
        fields
    }
}
