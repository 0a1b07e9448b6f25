//! Kernels: for each family the choice of variant, workgroup size and tile as a pure function of
//! a [`KernelSpec`] and [`Capabilities`](crate::caps::Capabilities), with the reason in words; the binding
//! table; the constants.
//!
//! Files import each other by their own paths, never from here, and without circles.

pub(crate) mod activation;
pub(crate) mod attention;
pub(crate) mod cache;
mod compose;
pub(crate) mod dropout;
pub(crate) mod elementwise;
pub(crate) mod embedding;
mod families;
pub(crate) mod intervention;
mod limits;
pub(crate) mod linear;
pub(crate) mod loss;
pub(crate) mod low_rank;
mod modules;
pub(crate) mod norm;
mod operand;
pub(crate) mod optimizer;
mod preprocess;
pub(crate) mod rope;
pub(crate) mod sample;
mod select;
mod shape;
pub(crate) mod softmax;
mod spec;
mod unroll;
pub(crate) mod weights;

pub use crate::format::{Element, KvCacheFormat, WeightFormat, WriteMode};
pub use crate::products::{Form, LinearShape, LinearTile, TunedProduct};
pub use activation::ActivationWidth;
pub use attention::backward::{attention_backward_f16, attention_matrix_tiles, key_value_owner};
pub use attention::by_products::{
    ProductTiles, STRIP, all_tiles, attention_long_product_tiles, attention_product_tiles,
    attention_products, attention_products_rotate,
};
pub use attention::decode_qkv::decode_qkv_fuses;
pub use attention::decode_ranges::{
    cache_splits, decode_splits, merged_splits, short_context_keys,
};
pub use attention::forward::{attention_forward_f16, matrix_forward_tiles};
pub use attention::tensors::{Geometry, Strides};
pub use attention::tile::attention_tiles;
pub use attention::{DecodeOver, DecodePartials, TensorAttention};
pub use cache::ring_rows;
pub use compose::{Grid, Kernel, Spec, Wgsl};
pub use elementwise::CHECKSUM_LANES;
pub(crate) use families::families;
pub use intervention::{
    InterventionEntry, InterventionKind, InterventionLayout, MOST_INTERVENTIONS,
};
pub(crate) use limits::{check_storage, row_workgroup};
pub use linear::gate_gradient::{linear_gives_gate_gradient, tile_gives_gate_gradient};
pub use linear::gated::{linear_gates, tile_gates};
pub use linear::matrix::reads_halves;
pub use linear::product::{linear_adapts, linear_parts, linear_parts_for_reader};
pub use linear::row::matvec_fuses;
pub use linear::team::matvec_merges;
pub use linear::tile::{LinearPick, linear_candidates, linear_tiles};
pub use linear::{GradientParts, MatvecInput, MatvecOutput};
pub use loss::{LogitRow, Objective, RowScore, SOFT_IDS, Steering, SteeringNumbers};
pub use low_rank::{LowRankModule, LowRankShape, LowRankSide};
pub use norm::{NormForm, NormTerms, SummedWeights, head_norm_rows, norm_rows};
pub use operand::{Access, Binding, Placement};
pub(crate) use operand::{read, read_write, uniform};
pub(crate) use optimizer::UpdateText;
pub use optimizer::{GRAD_NORM_GROUPS, UpdateKernel};
pub use rope::{rope_has_halves, rope_norms_heads};
pub use shape::{
    AttentionPass, AttentionProducts, AttentionShape, AttentionTile, BackwardRows, BatchAttention,
    CacheAttention, CacheRows, Constant, DecodeQkvShape, DecodeSplits, DenseMask, KeyValueOwner,
    NewKey, Output, PARTIAL_STATE, PartialSums, RANGE_KEYS, RopeShape, Scores, SplitReason,
};
pub use softmax::{RowPlace, softmax_unit};
pub use spec::KernelSpec;

macro_rules! publish {
    ($($family:ident: $($kernel:ident),+;)+) => { $(pub use $family::{$($kernel),+};)+ };
}
families!(publish);
