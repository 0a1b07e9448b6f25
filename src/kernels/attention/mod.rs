//! Attention over batches, caches and tensors, and softmax by itself.

pub(super) mod batch;
pub(super) mod by_products;
pub(super) mod cache;
pub(super) mod decode;
mod decode_place;
pub(super) mod matrix;
pub(super) mod matrix_backward;
pub(super) mod matrix_forward;
pub(super) mod newest;
mod operands;
pub(super) mod probabilities;
pub(super) mod softmax;
pub(super) mod tensors;
pub(super) mod tile;
