//! Attention over batches, caches and tensors, and softmax by itself.

pub(super) mod batch;
pub(super) mod cache;
pub(super) mod decode;
mod decode_place;
pub(super) mod kept;
pub(super) mod probabilities;
pub(super) mod softmax;
pub(super) mod tensors;
pub(super) mod tile;
