//! Kernels: for each family the choice of variant, workgroup size and tile as a pure function of
//! a [`KernelSpec`] and [`Capabilities`](crate::caps::Capabilities), with the reason in words; the binding
//! table; the constants.
//!
//! Files import each other by their own paths, never from here, and without cycles (`tests/rooms`).

mod attention;
mod compose;
mod elementwise;
mod limits;
mod linear;
mod loss;
mod modules;
mod norm;
mod operand;
mod optimizer;
mod preprocess;
mod sample;
mod select;
mod shape;
mod spec;
mod unroll;
mod unrolled;
mod update;

pub use crate::format::{Element, KvCache, WeightFormat, WriteMode};
pub use crate::products::{Form, LinearShape, LinearTile, TunedProduct};
pub use attention::batch::{
    attention_backward_key_value, attention_backward_key_value_with_tile, attention_backward_query,
    attention_backward_query_with_tile, attention_delta, attention_forward,
    attention_forward_with_tile, attention_group_sum, key_value_owner,
};
pub use attention::by_products::{
    STRIP, all_tiles, attention_backward_products, attention_product_tiles, attention_products,
    attention_products_turn,
};
pub use attention::cache::{cache_append, cache_append_several, cache_expand, ring_rows};
pub use attention::decode::{
    attention_decode, attention_decode_merge, attention_decode_merge_several,
    attention_decode_merge_tensors, attention_decode_several, attention_decode_tensors,
    cache_splits, decode_splits, near_keys, near_splits,
};
pub use attention::matrix_backward::{attention_backward_halves, attention_matrix_tiles};
pub use attention::matrix_forward::{attention_forward_halves, matrix_forward_tiles};
pub use attention::newest::{attention_decode_newest, newest_fuses};
pub use attention::probabilities::attention_probabilities;
pub use attention::softmax::{RowPlace, softmax, softmax_unit};
pub use attention::tensors::{Geometry, Strides, attention_delta_tensors, attention_tensors};
pub use attention::tile::attention_tiles;
pub use compose::{Grid, Kernel, Wgsl};
pub use elementwise::{
    CHECKSUM_LANES, activation, activation_backward, checksum, copy_row, dropout,
    embedding_backward, embedding_forward, embedding_packed, initialize, position_backward,
    position_forward, rope, rope_halves, rope_has_halves, rope_of_parts, scale, zero,
};
pub(crate) use limits::{check_storage, row_workgroup};
pub use linear::gate_gradient::{linear_gives_gate_gradient, tile_gives_gate_gradient};
pub use linear::gradient::gradient_sum;
pub use linear::matrix::reads_halves;
pub use linear::matvec::{matvec, matvec_fuses};
pub use linear::product::{Linear, LinearSum, linear, linear_parts, linear_with_tile};
pub use linear::several::matvec_rows;
pub use linear::team::matvec_merges;
pub use linear::tile::{LinearPick, linear_candidates, linear_tiles};
pub use linear::weights::{pack_weights, unpack_weights};
pub use loss::{cross_entropy, loss_sum, objective_cross_entropy, soft_cap};
pub use norm::{
    column_sum, head_norm_backward, head_norm_forward, layer_norm_backward, layer_norm_forward,
    norm_rows, rms_norm_backward, rms_norm_forward,
};
pub use operand::{Access, Binding, Placement};
pub(crate) use operand::{read, read_write, uniform};
pub use optimizer::{GRAD_NORM_GROUPS, average, grad_norm, step_decision};
pub use sample::{sample, sample_several, top_logits};
pub use shape::{
    ActivationWidth, AttentionHalves, AttentionPass, AttentionProducts, AttentionShape,
    AttentionTile, Constant, DecodeSplits, DenseMask, GradientParts, GradientSums, KeyValueOwner,
    LogitRow, MatvecInput, MatvecOutput, MatvecRowsShape, MatvecShape, NewestKey, NewestShape,
    NormForm, NormTerms, Objective, Output, PARTIAL_STATE, Parts, RANGE_KEYS, RopeShape,
    SplitReason, SummedWeights,
};
pub use spec::KernelSpec;
pub(crate) use update::UpdateText;
pub use update::{UpdateKernel, UpdateSpec};
