//! The layouts of a plan's values, and which nodes are joined. Both are decided for a whole graph before any node is
//! lowered.
//!
//! [`layouts`] decides for batches and chunks of prompts, [`decode_layouts`] for decoded rows. Both are pure functions.
//! [`lower`](crate::lower) then turns each node into dispatches. What it makes of a node does not depend on the nodes
//! before.

mod decode;
mod describe;
mod f16;
mod low_rank;
mod pass;
mod shapes;
mod sums;
#[cfg(test)]
mod tests;

pub use decode::{
    CacheLayout, DecodeLayouts, DecodeNode, DecodeOp, DecodeRequest, DecodeRows, decode_layouts,
};
pub use low_rank::{LowRankPiece, low_rank_fours, low_rank_pieces};
pub use pass::layouts;
pub use shapes::{
    Matrices, TokenRows, activation_width, attention_shape, batch_attention, cache_attention,
    gated_shape, logit_chunks, padded_logits, rope_shape, weight_part,
};
pub use sums::{ColumnSums, GradientProduct, ProductSums};

use crate::caps::Capabilities;
use crate::graph::{Graph, Node, ValueId};
use crate::kernels::{BackwardRows, Element, PartialSums, ProductTiles};
use crate::params::Params;
use crate::plan::{Buffer, Slice};
use std::ops::Range;

/// The documents that attention's backward pass by products has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentLength {
    /// Documents much shorter than a batch: they have few tiles.
    Short,
    /// A document may be as long as a batch. Its tiles are those of a part of the heads, in at least so many turns.
    Any { turns: usize },
}

/// The rows that a plan covers at a time, as far as layouts depend on them.
#[derive(Clone, Copy, Debug)]
pub enum PassKind {
    /// A batch that trains or evaluates.
    Batch {
        /// Activations are computed again to save memory.
        recompute: bool,
        /// Attention's backward pass may be by products, with room for these documents.
        by_products: Option<DocumentLength>,
        /// Rows of logits held at a time.
        logits: usize,
    },
    /// A chunk of a prompt, or whole texts. `appends`: what rotates keys may append them to a cache.
    Prompt { appends: bool },
}

/// What layouts are a function of.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    pub caps: &'a Capabilities,
    pub graph: &'a Graph,
    /// The nodes that the plan has.
    pub nodes: Range<usize>,
    /// A value in a buffer of other plans.
    pub outside: Option<ValueId>,
    pub matrices: Matrices<'a>,
    /// The layout of gradients.
    pub state: &'a Params,
    /// Rows of the largest batch.
    pub tokens: usize,
    pub kind: PassKind,
}

/// The result of a product split along K: the terms of a sum, which the node that reads it first adds up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitK {
    pub sums: PartialSums,
    pub slice: Slice,
    /// The residual stream that the sum is added to.
    pub stream: Option<ValueId>,
}

/// How a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    F32,
    /// Two elements to a word.
    F16,
    /// Partial sums. Their first reader also writes their total in f32, for the other readers.
    SplitK(SplitK),
    InPlaceOf(ValueId),
    /// The cosines and sines of one position.
    Angles,
    /// The row's rotated query heads alone: what wrote them has appended its keys and values to the cache.
    QueryHeads,
    /// For each head, `count` partial softmaxes, each over a range of keys.
    PartialSoftmax {
        count: usize,
    },
}

/// The value whose place a value has.
fn home(layouts: &[Layout], mut value: ValueId) -> ValueId {
    while let Layout::InPlaceOf(other) = layouts[value] {
        value = other;
    }
    value
}

/// Which dispatch rotates the gradients of attention back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotatedBy {
    /// The kernels of these gradients.
    Gradients,
    /// The sum over the query heads of a group.
    GroupSum,
}

/// What a node's dispatches do besides what the graph says.
#[derive(Clone, Debug, PartialEq)]
pub enum Fusion {
    None,
    /// Fused into another node, whose dispatches do this one's work.
    Absorbed,
    /// A product leaves partial sums.
    LeavesSplitK,
    /// The partial sums of this value, which the node reads, are added up.
    ReducesSplitK(ValueId),
    /// A rotation appends keys and values to the cache, and adds up the partial sums of a value if there are any.
    /// `norms`: the node before it whose norms of heads it does too.
    Appends {
        sum_of: Option<ValueId>,
        norms: Option<usize>,
    },
    /// A product of gradients is followed by this node, an activation's gradient.
    GateGradient(usize),
    /// A product with the matrix of gate and up is followed by this node, the activation.
    Gated(usize),
    /// A norm's gradient adds up the partial sums of a value, if there are any, and leaves those of its weight's here.
    NormBackward {
        sum_of: Option<ValueId>,
        partials: Slice,
    },
    /// Attention's gradients. `rotation`: the node whose rotation these dispatches also do. `tiles`: by products, with
    /// this room.
    AttentionBackward {
        sum_of: Option<ValueId>,
        rotation: Option<(usize, RotatedBy)>,
        tiles: Option<ProductTiles>,
    },
    /// Products that give the gradient of a weight, in order.
    WeightGradient(Vec<GradientProduct>),
    /// A product's sums have more terms: those of this node, an adapter's. What else its dispatches do.
    Adapted(usize, Box<Self>),
}

impl Fusion {
    /// The node whose terms a product's sums have too, and what else its dispatches do.
    pub fn of_product(&self) -> (Option<usize>, &Self) {
        match self {
            Self::Adapted(low, other) => (Some(*low), other),
            other => (None, other),
        }
    }

    /// The value whose partial sums the node adds up.
    pub const fn sum_of(&self) -> Option<ValueId> {
        match self {
            Self::ReducesSplitK(value) => Some(*value),
            Self::Appends { sum_of, .. }
            | Self::NormBackward { sum_of, .. }
            | Self::AttentionBackward { sum_of, .. } => *sum_of,
            _ => None,
        }
    }
}

/// A node as it is lowered.
#[derive(Clone, Debug, PartialEq)]
pub enum LaidNode {
    /// A node of the graph, by its index.
    Node(usize, Fusion),
    /// One dispatch for the partial sums of several weights' gradients, by index.
    ColumnSum(usize),
    /// One dispatch for the products of several weights' gradients, which are split along K.
    ProductSum(usize),
}

/// A tensor that several nodes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedTensor {
    pub what: &'static str,
    pub bytes: u64,
}

/// The layouts of values, and the nodes in the order of their dispatches.
#[derive(Clone, Debug)]
pub struct Layouts<'a> {
    pub graph: &'a Graph,
    pub values: Vec<Layout>,
    pub nodes: Vec<LaidNode>,
    /// Their numbers follow those of the values.
    pub tensors: Vec<SharedTensor>,
    pub column_sums: Vec<ColumnSums>,
    pub product_sums: Vec<ProductSums>,
}

impl Layouts<'_> {
    pub fn is_f16(&self, value: ValueId) -> bool {
        self.values[value] == Layout::F16
    }

    /// Elements, as f32, of a row of a value.
    pub fn columns(&self, value: ValueId) -> usize {
        let columns = self.graph.values[value].columns;
        if self.is_f16(value) { columns / 2 } else { columns }
    }

    /// The value whose place a value has.
    pub fn home(&self, value: ValueId) -> ValueId {
        home(&self.values, value)
    }

    pub fn split_k(&self, value: ValueId) -> Option<SplitK> {
        match self.values[value] {
            Layout::SplitK(split) => Some(split),
            _ => None,
        }
    }

    /// The format of a value.
    pub fn element(&self, value: Option<&ValueId>) -> Element {
        Element::halved(value.is_some_and(|&value| self.is_f16(value)))
    }

    /// The rows of a node's product, given those of a product in f32.
    pub fn product_rows(&self, node: &Node, rows: TokenRows) -> TokenRows {
        let operands = [0, 1].map(|index| self.element(node.reads.get(index)));
        TokenRows { operands, result: self.element(node.writes.first()), ..rows }
    }

    /// The layout of the rows of attention's gradient, whose result is in `target`'s place.
    pub fn backward_rows(&self, node: &Node, target: ValueId) -> BackwardRows {
        let [qkv_f16, d_output_f16] = [0, 3].map(|index| self.is_f16(node.reads[index]));
        BackwardRows { qkv_f16, d_output_f16, d_qkv_f16: self.is_f16(target), rotated: false }
    }

    /// Whether what leaves a value has appended its keys and values to the cache.
    pub fn appends(&self, value: ValueId) -> bool {
        self.nodes.iter().any(|laid| match laid {
            LaidNode::Node(index, Fusion::Appends { .. }) => {
                self.graph.nodes[*index].writes[0] == value
            }
            _ => false,
        })
    }

    /// Bytes of all tensors that values have, and of those that nodes share.
    pub fn bytes(&self, tokens: usize) -> Vec<u64> {
        let values = 0..self.values.len();
        let values = values.map(|value| tokens as u64 * self.columns(value) as u64 * 4);
        values.chain(self.tensors.iter().map(|tensor| tensor.bytes)).collect()
    }

    /// The shared tensor of a slice.
    pub fn shared(&self, slice: Slice) -> Option<SharedTensor> {
        let Buffer::Virtual(id) = slice.buffer else { return None };
        self.tensors.get(id.checked_sub(self.values.len())?).copied()
    }
}
