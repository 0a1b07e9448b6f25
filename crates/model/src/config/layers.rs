//! Layers that say what they are: a list of what they have other than the model's config says.

use super::field::{Field, Kind, Slot};
use super::fields::{Fields, refuse, size};
use super::{ModelConfig, Written};
use crate::arch::Family;
use crate::error::{Error, Result};
use serde_json::value::RawValue;

/// What the layers have. A family's fields after this one belong to each layer.
pub static LAYERS_LIST: Slot = Slot::number(
    "layers",
    Kind::Custom { read, write },
    "What layers of a tinyloom model have other than the fields beside it say: an object for each, `{}` for none, or for \
     `repeat` of them that follow each other. A list of fewer layers begins again.",
)
.typed("LayerFields[]");

/// For how many layers an entry stands.
const REPEAT: &str = "repeat";

/// Layers of one kind, one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerKind {
    pub config: ModelConfig,
    pub repeat: usize,
}

/// A family's fields that each layer has.
pub fn of_layers(family: &Family) -> Vec<Field> {
    let all = family.fields().into_iter();
    all.skip_while(|field| field.slot.name != LAYERS_LIST.name).skip(1).collect()
}

impl ModelConfig {
    /// What the config says of a layer.
    pub fn layer(&self, index: usize) -> &Self {
        let period: usize = self.layers.iter().map(|kind| kind.repeat).sum();
        let mut index = index % period.max(1);
        let own = self.layers.iter().find(|kind| {
            let here = index < kind.repeat;
            index = index.saturating_sub(kind.repeat);
            here
        });
        own.map_or(self, |kind| &kind.config)
    }
}

/// Reads each entry over the model's own fields, which are still there.
fn read(field: &Field, fields: &mut Fields<'_>, config: &mut ModelConfig) -> Result<()> {
    let text = fields.text(field.name).filter(|text| *text != "null");
    let given = fields.take_set(field.name)?;
    let list = |text| serde_json::from_str::<Vec<&RawValue>>(text).unwrap_or_default();
    let entries = text.map(list).unwrap_or_default();
    if let Some(value) = given {
        if entries.is_empty() {
            let allowed = "a list of objects, one for each layer or for those that begin again";
            return Err(refuse(field.name, &value, allowed));
        }
        config.own.insert(field.name, value);
    }
    let own = of_layers(config.family);
    let layers = config.num_hidden_layers;
    let mut kinds = vec![];
    let mut listed = 0;
    for (index, entry) in entries.iter().enumerate() {
        let kind = layer(entry.get(), fields, config, &own)
            .map_err(|error| placed(error, &format!("{}[{index}]", field.name)))?;
        listed += kind.repeat;
        if listed > layers {
            return Err(Error::config(format!(
                "config field layers has more than {layers} layers; num_hidden_layers is {layers}: raise it, or shorten \
                 the list"
            )));
        }
        kinds.push(kind);
    }
    config.layers = kinds;
    Ok(())
}

/// The config of the layers of an entry.
fn layer(text: &str, model: &Fields<'_>, config: &ModelConfig, own: &[Field]) -> Result<LayerKind> {
    let mut fields = Fields::read(text)?;
    let repeat = match fields.take(REPEAT)? {
        Some(value) => size(REPEAT, &value, config.num_hidden_layers)?,
        None => 1,
    };
    let names: Vec<&str> = own.iter().map(|field| field.name).collect();
    if let Some(unknown) = fields.names().find(|name| !names.contains(name)) {
        return Err(Error::config(format!(
            "config field {unknown:.200} is unknown: rename it, or remove it; a layer has {REPEAT}, {}",
            names.join(", ")
        )));
    }
    names.iter().for_each(|name| fields.inherit(name, model));
    let mut config = config.clone();
    own.iter().try_for_each(|field| field.read(&mut fields, &mut config))?;
    config.check()?;
    config.check_sizes()?;
    Ok(LayerKind { config, repeat })
}

/// An error in an entry of the list.
fn placed(error: Error, place: &str) -> Error {
    let message = match error.message.strip_prefix("config field ") {
        Some(rest) => format!("config field {place}.{rest}"),
        None => format!("config field {place}: {}", error.message),
    };
    Error { message, ..error }
}

fn write(field: &Field, config: &ModelConfig) -> Written {
    config.own.get(field.name).map(|value| (field.name, value.clone())).into_iter().collect()
}
