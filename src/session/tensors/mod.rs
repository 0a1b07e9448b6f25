//! Tensors by themselves, without a model.

pub(super) mod ops;
pub(super) mod tensor;
