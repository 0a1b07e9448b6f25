//! Which layers have a window.

use super::fields::refuse;
use crate::error::Result;
use serde_json::Value;

/// What the queries of a layer see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerType {
    /// All keys before them.
    Full,
    /// Keys in the sliding window.
    Sliding,
}

impl LayerType {
    pub(crate) const ALL: [Self; 2] = [Self::Full, Self::Sliding];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Full => "full_attention",
            Self::Sliding => "sliding_attention",
        }
    }

    /// The types that a field lists, one for each of `layers` layers.
    pub(crate) fn read(name: &str, value: &Value, layers: usize) -> Result<Vec<Self>> {
        let names = value.as_array().map_or(&[][..], Vec::as_slice);
        let known = |name: &Value| Self::ALL.into_iter().find(|kind| name == kind.name());
        let kinds: Vec<_> = names.iter().filter_map(known).collect();
        if names.len() == layers && kinds.len() == layers {
            return Ok(kinds);
        }
        Err(refuse(name, value, "\"sliding_attention\" or \"full_attention\" for each layer"))
    }
}
