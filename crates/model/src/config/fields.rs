//! The object of `config.json` while it is read. Only the fields that tinyloom reads become values;
//! the others stay the text that they are.

use crate::arch::Family;
use crate::error::{Error, Result};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::Value;
use serde_json::error::Category;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt;

/// Bytes that a config may have. Real ones have a few thousand; a longer text would keep the page busy.
pub(super) const MAX_BYTES: usize = 1 << 20;
/// Fields that a config may have. Real ones have fewer than a hundred.
const MAX_FIELDS: usize = 1024;
/// Bytes of a field that tinyloom reads: a longer one cannot be right, so no value is made of it. A list with a name for
/// each of 4096 layers, as `to_json` writes it, takes 0.4 of them.
const MAX_FIELD_BYTES: usize = 256 << 10;

/// What is taken leaves the map; the rest is what tinyloom does not read.
#[derive(Debug)]
pub struct Fields<'a>(BTreeMap<String, &'a RawValue>);

impl<'a> Fields<'a> {
    pub fn read(text: &'a str) -> Result<Self> {
        if text.len() > MAX_BYTES {
            return Err(Error::config(format!(
                "the config has {} bytes; it may have at most {MAX_BYTES}: take out the fields that \
                 are not the model's",
                text.len()
            )));
        }
        serde_json::from_str(text).map_err(|e| match e.classify() {
            Category::Data => Error::config(format!("the config cannot be read: {e}")),
            _ => Error::config(format!("the config is not valid JSON: {e}")),
        })
    }

    /// The config in a field, where the field's config has one of these families and the outer config has none of them.
    pub fn nested(&self, name: &str, families: &[&'static Family]) -> Result<Option<Self>> {
        let known = |fields: &Self| -> Result<bool> {
            let given = fields.peek("model_type")?;
            Ok(families.iter().any(|family| given == family.names[0]))
        };
        if !self.0.contains_key("model_type") || known(self)? {
            return Ok(None);
        }
        let Some(raw) = self.0.get(name).filter(|raw| raw.get().starts_with('{')) else {
            return Ok(None);
        };
        let inner = Self::read(raw.get())?;
        Ok(known(&inner)?.then_some(inner))
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// A field that stays, as JSON text.
    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.0.get(name).map(|raw| raw.get())
    }

    /// Takes over another's field that this has not.
    pub fn inherit(&mut self, name: &str, from: &Self) {
        if let Some(raw) = from.0.get(name).filter(|_| !self.has(name)) {
            self.0.insert(name.to_owned(), raw);
        }
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The fields that nobody took, as JSON texts.
    pub fn rest(self) -> BTreeMap<String, String> {
        self.0.into_iter().map(|(name, raw)| (name, raw.get().to_owned())).collect()
    }

    pub fn take(&mut self, name: &str) -> Result<Option<Value>> {
        self.0.remove(name).map(|raw| value(name, raw)).transpose()
    }

    /// A field that stays.
    pub fn peek(&self, name: &str) -> Result<Value> {
        self.0.get(name).map_or(Ok(Value::Null), |raw| value(name, raw))
    }

    /// Leaves a field out of the rest, whatever it holds.
    pub fn drop(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// `None` stands for both a missing field and `null`.
    pub fn take_set(&mut self, name: &str) -> Result<Option<Value>> {
        Ok(self.take(name)?.filter(|value| !value.is_null()))
    }

    pub fn size(&mut self, name: &str, default: usize, max: usize) -> Result<usize> {
        self.take(name)?.map_or(Ok(default), |value| size(name, &value, max))
    }

    pub fn optional_size(&mut self, name: &str, max: usize) -> Result<Option<usize>> {
        self.take_set(name)?.map(|value| size(name, &value, max)).transpose()
    }

    pub fn real(&mut self, name: &str, default: f64) -> Result<f64> {
        self.take(name)?.map_or(Ok(default), |value| real(name, &value))
    }

    pub fn optional_real(&mut self, name: &str) -> Result<Option<f64>> {
        self.take_set(name)?.map(|value| real(name, &value)).transpose()
    }

    /// A field for which `null` is none, and missing is `default`.
    pub fn real_or(&mut self, name: &str, default: Option<f64>) -> Result<Option<f64>> {
        match self.take(name)? {
            None => Ok(default),
            Some(Value::Null) => Ok(None),
            Some(value) => real(name, &value).map(Some),
        }
    }

    pub fn flag(&mut self, name: &str, default: bool) -> Result<bool> {
        self.take(name)?.map_or(Ok(default), |value| {
            value.as_bool().ok_or_else(|| refuse(name, &value, "true or false"))
        })
    }

    /// A field that may stay as it is when it asks for nothing tinyloom lacks; `null` never does.
    pub fn require_neutral(&self, name: &str, neutral: Neutral, allowed: &str) -> Result<()> {
        let Some(raw) = self.0.get(name) else { return Ok(()) };
        if raw.get() == "null" || value(name, raw).is_ok_and(|value| neutral(&value)) {
            return Ok(());
        }
        Err(refuse_text(name, raw.get(), allowed))
    }
}

/// Whether a value asks for nothing.
pub type Neutral = fn(&Value) -> bool;

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object with the fields of config.json")
    }

    fn visit_map<A: MapAccess<'de>>(
        self,
        mut map: A,
    ) -> std::result::Result<Self::Value, A::Error> {
        let mut fields = vec![];
        while let Some(field) = map.next_entry::<String, &RawValue>()? {
            fields.push(field);
            // A name that comes again takes as long as another one.
            if fields.len() > MAX_FIELDS {
                return Err(A::Error::custom(format!("more than {MAX_FIELDS} fields")));
            }
        }
        Ok(Fields(fields.into_iter().collect()))
    }
}

fn value(name: &str, raw: &RawValue) -> Result<Value> {
    let text = raw.get();
    if text.len() > MAX_FIELD_BYTES {
        return Err(refuse_text(name, text, &format!("at most {MAX_FIELD_BYTES} bytes long")));
    }
    serde_json::from_str(text)
        .map_err(|e| Error::config(format!("config field {name} cannot be read: {e}")))
}

pub fn refuse(name: &str, value: &Value, allowed: &str) -> Error {
    refuse_text(name, &value.to_string(), allowed)
}

fn refuse_text(name: &str, text: &str, allowed: &str) -> Error {
    let cut = text.char_indices().nth(200);
    let (shown, more) = cut.map_or((text, ""), |(at, _)| (&text[..at], "…"));
    Error::config(format!("config field {name} is {shown}{more}; it must be {allowed}"))
}

pub fn size(name: &str, value: &Value, max: usize) -> Result<usize> {
    number(value)
        .as_u64()
        .filter(|&n| 1 <= n && n <= max as u64)
        .map(|n| n as usize)
        .ok_or_else(|| refuse(name, value, &format!("an integer from 1 to {max}")))
}

pub(super) fn real(name: &str, value: &Value) -> Result<f64> {
    let finite = number(value).as_f64().filter(|x| x.is_finite());
    finite.ok_or_else(|| refuse(name, value, "a finite number"))
}

/// The number that a text has, as some programs write numbers; other values stay.
fn number(value: &Value) -> Value {
    let read = |text: &str| serde_json::from_str::<Value>(text).ok().filter(Value::is_number);
    value.as_str().and_then(read).unwrap_or_else(|| value.clone())
}
