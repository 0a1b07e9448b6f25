//! What attention's kernels compute, and which function makes each.
//!
//! The functions that make kernels build these, so they lie apart.

use crate::format::{Element, KvCache};
use crate::kernels::shape::{
    AttentionPass, AttentionProducts, AttentionShape, AttentionTile, DecodeSplits, DenseMask,
    KeyValueOwner, NewestShape, Parts,
};

/// Keys and values are the batch's own rows, or with `cached` rows of a cache in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionForward {
    pub shape: AttentionShape,
    pub cached: bool,
    pub tile: Option<AttentionTile>,
}

/// The row sums that both backward kernels need. `d_output` lies in `parts`: then it is also left whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionDelta {
    pub shape: AttentionShape,
    pub parts: Parts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionBackwardQuery {
    pub shape: AttentionShape,
    pub tile: Option<AttentionTile>,
}

/// Document ends lie `ends` elements behind the starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionBackwardKeyValue {
    pub shape: AttentionShape,
    pub owner: KeyValueOwner,
    pub ends: usize,
    pub tile: Option<AttentionTile>,
}

/// A kernel of the backward pass by products. Each head has up to `tiles` tiles of probabilities, and as many of
/// score gradients. Document ends lie `ends` elements behind the starts. Tables of the tiles lie `2 * ends` behind
/// the starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionBackwardProducts {
    pub shape: AttentionShape,
    pub tiles: usize,
    pub ends: usize,
    pub products: AttentionProducts,
}

/// Adds up the parts of [`KeyValueOwner::Head`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionGroupSum {
    pub shape: AttentionShape,
}

/// How much the queries of one head attend to each key of a cache in f32; the head is a run-time value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionProbabilities {
    pub shape: AttentionShape,
}

/// The newest row's queries over a cache: the result where `splits.count` is 1, else partial ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionDecode {
    pub shape: AttentionShape,
    pub cache: KvCache,
    pub splits: DecodeSplits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionDecodeMerge {
    pub shape: AttentionShape,
    pub splits: DecodeSplits,
}

/// The newest row's norm, product and rotation, and its queries over the keys before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionDecodeNewest {
    pub shape: NewestShape,
    pub splits: DecodeSplits,
}

/// [`AttentionDecode`] of each of `rows` fused rows, over its own text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionDecodeSeveral {
    pub shape: AttentionShape,
    pub cache: KvCache,
    pub splits: DecodeSplits,
    pub rows: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionDecodeMergeSeveral {
    pub shape: AttentionShape,
    pub splits: DecodeSplits,
    pub rows: usize,
}

/// A pass of attention over tensors of `batch` items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionTensors {
    pub shape: AttentionShape,
    pub pass: AttentionPass,
    pub element: Element,
    pub dense: DenseMask,
    pub batch: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionDeltaTensors {
    pub shape: AttentionShape,
    pub element: Element,
    pub batch: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionDecodeTensors {
    pub shape: AttentionShape,
    pub element: Element,
    pub splits: DecodeSplits,
    pub batch: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionDecodeMergeTensors {
    pub shape: AttentionShape,
    pub element: Element,
    pub splits: DecodeSplits,
    pub batch: usize,
}
