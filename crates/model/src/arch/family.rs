//! What a model family is.

use super::describe::Describe;
use super::gguf::Gguf;
use super::{Architecture, FAMILIES};
use crate::config::{Field, Refusal, Slot};
use std::fmt;

/// A model family: all that tinyloom knows of it.
pub struct Family {
    /// `model_type`, and the class that `architectures` names.
    pub names: [&'static str; 2],
    /// The family whose fields it has too, where it has none of its own for the same.
    pub like: Option<&'static Self>,
    /// Its fields of `config.json`. Each may read those before it.
    pub fields: &'static [Field],
    /// Fields that it does not read, and refuses unless they ask for nothing.
    pub refused: &'static [Refusal],
    /// How llama.cpp has it, if it knows it. A test writes it for `pkg/src/gguf`.
    pub gguf: Option<Gguf>,
    /// What a model of it is.
    pub describe: fn(Describe) -> Architecture,
}

impl Family {
    /// Its fields, with those of the family that it is like.
    pub fn fields(&self) -> Vec<Field> {
        let mut all = self.like.map_or(vec![], Self::fields);
        for own in self.fields {
            match all.iter_mut().find(|field| field.slot.name == own.slot.name) {
                Some(same) => *same = *own,
                None => all.push(*own),
            }
        }
        all
    }

    /// Its field for a slot, or one of the same name.
    pub fn find(&self, slot: &Slot) -> Option<Field> {
        let own = self.fields.iter().find(|field| field.slot.name == slot.name).copied();
        own.or_else(|| self.like?.find(slot))
    }

    pub fn has(&self, slot: &Slot) -> bool {
        self.find(slot).is_some()
    }
}

impl Default for &'static Family {
    fn default() -> Self {
        FAMILIES[0]
    }
}

impl PartialEq for Family {
    fn eq(&self, other: &Self) -> bool {
        self.names == other.names
    }
}

impl fmt::Debug for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.names[0])
    }
}
