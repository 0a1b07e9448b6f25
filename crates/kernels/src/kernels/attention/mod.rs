//! Attention over batches, caches and tensors.

pub(super) mod batch;
pub(super) mod by_products;
#[cfg(feature = "testing")]
pub(crate) mod cases;
pub(super) mod decode;
mod decode_place;
mod kernels;
pub(super) mod matrix;
pub(super) mod matrix_backward;
pub(super) mod matrix_forward;
pub(super) mod newest;
mod operands;
pub(super) mod probabilities;
pub(super) mod specs;
pub(super) mod tensors;
pub(super) mod tile;
#[cfg(feature = "testing")]
mod twin;

pub use specs::{
    AttentionBackwardKeyValue, AttentionBackwardProducts, AttentionBackwardQuery, AttentionDecode,
    AttentionDecodeMerge, AttentionDecodeMergeSeveral, AttentionDecodeMergeTensors,
    AttentionDecodeNewest, AttentionDecodeSeveral, AttentionDecodeTensors, AttentionDelta,
    AttentionDeltaTensors, AttentionForward, AttentionGroupSum, AttentionProbabilities,
    AttentionTensors,
};
