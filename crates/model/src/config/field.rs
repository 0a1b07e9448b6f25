//! A field of `config.json`: what it means, how it is read, kept and written, and its type in TypeScript.

use super::ModelConfig;
use super::fields::{Fields, refuse, size};
use crate::error::Result;
use serde_json::{Value, json};

/// What a field means, whatever a family calls it.
#[derive(Debug)]
pub struct Slot {
    /// Its name in most families.
    pub name: &'static str,
    /// Names that other families and programs have for it.
    pub aliases: &'static [&'static str],
    pub kind: Kind,
    /// Its type in TypeScript.
    pub typescript: &'static str,
    /// What users read about it.
    pub about: &'static str,
}

/// The fields of a config that a family writes, by name.
pub type Written = Vec<(&'static str, Value)>;

/// Which values a field may have, and where a [`ModelConfig`] keeps it.
#[derive(Debug)]
pub enum Kind {
    /// An integer from 1 to this.
    Size(usize, fn(&mut ModelConfig) -> &mut usize),
    /// The same, or null for none.
    OptionalSize(usize, fn(&mut ModelConfig) -> &mut Option<usize>),
    Real(fn(&mut ModelConfig) -> &mut f64),
    /// The same, or null for none.
    OptionalReal(fn(&mut ModelConfig) -> &mut Option<f64>),
    Flag(fn(&mut ModelConfig) -> &mut bool),
    /// A share that training leaves out.
    Rate(fn(&mut ModelConfig) -> &mut f64),
    /// What only one family has: kept in [`ModelConfig::own`], as this reads it.
    Own(fn(&Field, &mut Fields<'_>, &ModelConfig) -> Result<Value>),
    /// What has rules of its own.
    Custom {
        read: fn(&Field, &mut Fields<'_>, &mut ModelConfig) -> Result<()>,
        write: fn(&Field, &ModelConfig) -> Written,
    },
    /// Read and written with another field.
    With,
}

/// What stands for a field that is missing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Missing {
    /// Nothing, or what follows from other fields.
    Nothing,
    Size(usize),
    Real(f64),
    Flag(bool),
    Activation(&'static str),
}

impl Missing {
    pub const fn size(self) -> Option<usize> {
        if let Self::Size(size) = self { Some(size) } else { None }
    }

    pub const fn real(self) -> Option<f64> {
        if let Self::Real(real) = self { Some(real) } else { None }
    }
}

/// A field as a family has it.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name there.
    pub name: &'static str,
    pub slot: &'static Slot,
    pub missing: Missing,
    /// Whether none is written, as null.
    pub nulls: bool,
}

impl Slot {
    /// A number that has no other names.
    pub const fn number(name: &'static str, kind: Kind, about: &'static str) -> Self {
        Self { name, aliases: &[], kind, typescript: "number", about }
    }

    /// A number that has no other names, or null.
    pub const fn nullable(name: &'static str, kind: Kind, about: &'static str) -> Self {
        Self::number(name, kind, about).typed("number | null")
    }

    /// A field of a family's own that is true or false. Where nothing stands for it, it stays as it is unless it is true.
    pub const fn own_flag(name: &'static str, about: &'static str) -> Self {
        Self::number(name, Kind::Own(flag), about).typed("boolean")
    }

    /// A number above 0 of a family's own.
    pub const fn own_real(name: &'static str, about: &'static str) -> Self {
        Self::number(name, Kind::Own(real), about)
    }

    /// This slot with another type in TypeScript.
    pub const fn typed(self, typescript: &'static str) -> Self {
        Self { typescript, ..self }
    }

    pub const fn also(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    /// The field of a family in which this stands for it where it is missing.
    pub const fn or(&'static self, missing: Missing) -> Field {
        Field { name: self.name, slot: self, missing, nulls: false }
    }

    /// The field of a family in which nothing does.
    pub const fn or_nothing(&'static self) -> Field {
        self.or(Missing::Nothing)
    }
}

fn real(field: &Field, fields: &mut Fields<'_>, _: &ModelConfig) -> Result<Value> {
    let value = fields.real(field.name, field.missing.real().unwrap_or(1.0))?;
    if value > 0.0 && (value as f32).is_normal() {
        return Ok(json!(value));
    }
    Err(refuse(field.name, &json!(value), "above 0 and a number of f32"))
}

fn flag(field: &Field, fields: &mut Fields<'_>, _: &ModelConfig) -> Result<Value> {
    let asked = fields.text(field.name).is_some_and(|text| !["false", "null"].contains(&text));
    if field.missing == Missing::Nothing && !asked {
        return Ok(Value::Null);
    }
    let missing = field.missing == Missing::Flag(true);
    fields.flag(field.name, missing).map(Value::Bool)
}

impl Field {
    /// This field under the family's own name.
    pub const fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// This field, written as null where it is none.
    pub const fn with_nulls(self) -> Self {
        Self { nulls: true, ..self }
    }

    /// Takes the field into the config, which has those before it.
    pub fn read(&self, fields: &mut Fields<'_>, config: &mut ModelConfig) -> Result<()> {
        let Self { name, missing, .. } = *self;
        match self.slot.kind {
            Kind::Size(most, place) => {
                *place(config) = fields.size(name, missing.size().unwrap_or(1), most)?;
            }
            Kind::OptionalSize(most, place) => {
                *place(config) = match fields.take(name)? {
                    None => missing.size(),
                    Some(Value::Null) => None,
                    Some(value) => Some(size(name, &value, most)?),
                };
            }
            Kind::Real(place) => {
                *place(config) = fields.real(name, missing.real().unwrap_or(0.0))?;
            }
            Kind::OptionalReal(place) => *place(config) = fields.real_or(name, missing.real())?,
            Kind::Flag(place) => {
                *place(config) = fields.flag(name, missing == Missing::Flag(true))?;
            }
            Kind::Rate(place) => {
                let rate = fields.optional_real(name)?.or(missing.real()).unwrap_or(0.0);
                if !(0.0..1.0).contains(&rate) {
                    return Err(refuse(name, &json!(rate), "at least 0 and below 1"));
                }
                *place(config) = rate;
            }
            Kind::Own(read) => {
                let value = read(self, fields, config)?;
                if !value.is_null() {
                    config.own.insert(self.slot.name, value);
                }
            }
            Kind::Custom { read, .. } => read(self, fields, config)?,
            Kind::With => {}
        }
        Ok(())
    }

    /// What is written of it.
    pub fn write(&self, config: &mut ModelConfig) -> Written {
        let some = |value: Option<Value>| match value {
            None if !self.nulls => None,
            value => Some(value.unwrap_or(Value::Null)),
        };
        let value = match self.slot.kind {
            Kind::Size(_, place) => Some(json!(*place(config))),
            Kind::OptionalSize(_, place) => some(place(config).map(|size| json!(size))),
            Kind::Real(place) | Kind::Rate(place) => Some(json!(*place(config))),
            Kind::OptionalReal(place) => some(place(config).map(|real| json!(real))),
            Kind::Flag(place) => Some(json!(*place(config))),
            Kind::Own(_) => config.own.get(&self.slot.name).cloned(),
            Kind::Custom { write, .. } => return write(self, config),
            Kind::With => None,
        };
        value.into_iter().map(|value| (self.name, value)).collect()
    }
}
