//! Passes over decoded rows: which nodes one kernel does, and how the values between them are stored.
//!
//! A kernel for one row reads a whole matrix, so what comes before and after a product is cheap beside it. Each fusion
//! is a node of its own here, [`DecodeOp`]. Its dispatches depend on the node and on the layouts alone.

mod describe;
mod pass;
#[cfg(test)]
mod tests;

pub use pass::decode_layouts;

use super::{Layout, Matrices};
use crate::arch::{Attention, Norm, RopeId, WeightId};
use crate::caps::Capabilities;
use crate::graph::{Graph, MlpActivation, Node, Op, Value, ValueId};
use crate::kernels::{DecodeQkvShape, DecodeSplits, KvCacheFormat, NewKey};
use std::ops::Range;

/// The key-value cache that attention reads and writes.
#[derive(Clone, Copy, Debug)]
pub struct CacheLayout {
    pub format: KvCacheFormat,
    /// Texts in a layer's cache.
    pub sequences: usize,
    /// Rows of the buffer for each text: its capacity, or the ring.
    pub rows: usize,
    /// Rows after which the cache begins again, where every layer has a window.
    pub ring: Option<usize>,
    /// The most tokens of a text that the plan is for. It does not depend on the cache's size, so a cache that grows
    /// compiles no kernel.
    pub keys: usize,
}

/// The rows of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeRows {
    /// The newest row of one text.
    One,
    /// This many rows: each of a text of its own, or all the next positions of one text.
    Batched(usize),
}

/// What the nodes of decoded rows are a function of.
#[derive(Clone, Debug)]
pub struct DecodeRequest<'a> {
    pub caps: &'a Capabilities,
    /// A forward pass.
    pub graph: &'a Graph,
    /// The nodes that the plan has.
    pub nodes: Range<usize>,
    /// A value in a buffer of other plans.
    pub outside: Option<ValueId>,
    pub matrices: Matrices<'a>,
    pub rows: DecodeRows,
    pub cache: CacheLayout,
}

/// An operation on decoded rows. Reads and writes are those of [`DecodeNode`], in this order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DecodeOp {
    /// An operation of the graph, which no kernel joins to another here.
    Plain(Op),
    /// → rows, and the angles of the row's position from the table of a rotation.
    EmbedAngles { weight: WeightId, rope: RopeId },
    /// x → y = matrix · norm(x).
    NormLinear { norm: Norm, weight: WeightId },
    /// x → activate(gate) · up of the two halves of matrix · norm(x).
    NormLinearGate { norm: Norm, weight: WeightId, mlp: MlpActivation },
    /// x, and for one row its angles → queries. Norm, product, bias and rotation; keys and values go to the cache.
    QkvAppend { norm: Norm, weight: WeightId, bias: Option<WeightId>, attention: Attention },
    /// x, angles → queries, partial results: [`DecodeOp::QkvAppend`], and attention of the newest row to ranges of the
    /// keys before it. Whoever merges the ranges adds the newest key.
    QkvAttentionDecode {
        shape: DecodeQkvShape,
        norm: WeightId,
        weight: WeightId,
        bias: Option<WeightId>,
        attention: Attention,
        splits: DecodeSplits,
    },
    /// qkv, whose keys and values go to the cache.
    CacheAppend { attention: Attention },
    /// qkv, or queries whose keys and values are in the cache → output, or partial results of several ranges of keys.
    Attention { attention: Attention, splits: DecodeSplits },
    /// Partial results → output.
    MergePartials { attention: Attention, splits: DecodeSplits },
    /// [`Op::Linear`] of the output that it merges itself: partial results, the queries where the newest key is apart,
    /// and a residual if there is one → y.
    MergingLinear {
        weight: WeightId,
        bias: Option<WeightId>,
        attention: Attention,
        splits: DecodeSplits,
        newest: NewKey,
    },
}

/// An operation on values, as it is lowered.
pub type DecodeNode = Node<DecodeOp>;

/// The nodes of decoded rows in their order, and the layouts of their values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DecodeLayouts {
    /// The graph's values, then those that only these nodes have.
    pub values: Vec<Value>,
    pub layouts: Vec<Layout>,
    /// The values that have a tensor, in the order in which tensors are numbered.
    pub tensors: Vec<ValueId>,
    pub nodes: Vec<DecodeNode>,
    /// The angles of the newest row.
    pub angles: Option<ValueId>,
}

impl DecodeLayouts {
    /// The value whose place a value has.
    pub fn home(&self, value: ValueId) -> ValueId {
        super::home(&self.layouts, value)
    }
}
