//! How a plan's values lie, and which nodes are joined: decided for a whole graph before any node is lowered.
//!
//! Everything here is pure. [`lower`](crate::lower) turns each node into dispatches by what it says, whatever has been
//! lowered before.

mod decode;
mod shapes;

pub use decode::{
    Cache, DecodeLayouts, DecodeNode, DecodeOp, DecodeRequest, DecodeRows, decode_layouts,
};
pub use shapes::{Matrices, attention_shape, rope_shape};

use crate::graph::ValueId;

/// How a value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    F32,
    InPlaceOf(ValueId),
    /// The cosines and sines of one position.
    Angles,
    /// Queries, whose keys and values are in the cache.
    InCache,
    /// Of each head a partial softmax for each of so many ranges of keys.
    SoftmaxRanges {
        count: usize,
    },
}
