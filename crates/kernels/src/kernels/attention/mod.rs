//! Attention over batches, caches and tensors.

pub(super) mod backward;
pub(super) mod by_products;
#[cfg(feature = "testing")]
pub(crate) mod cases;
mod decode;
pub(super) mod decode_qkv;
pub(super) mod decode_ranges;
mod decode_tile;
pub(super) mod forward;
mod matrix;
mod operands;
mod probabilities;
mod sums;
pub(super) mod tensors;
pub(super) mod tile;
#[cfg(feature = "testing")]
pub(crate) mod twin;

pub use backward::{AttentionBackwardKeyValue, AttentionBackwardQuery};
pub use by_products::AttentionBackwardProducts;
pub use decode::{AttentionDecode, AttentionDecodeMerge, DecodeOver, DecodePartials};
pub use decode_qkv::AttentionDecodeQkv;
pub use forward::{AttentionForward, AttentionForwardCached};
pub use probabilities::{AttentionProbabilities, AttentionShares};
pub use sums::{AttentionDelta, AttentionGroupSum};
pub use tensors::{AttentionDeltaTensors, AttentionTensors, TensorAttention};
