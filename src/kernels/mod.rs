//! Kernels: for each family the choice of variant, workgroup size and tile as a pure function of
//! shape and [`Capabilities`], with the reason in words; the binding table; the constants.

mod attention;
mod attention_decode;
mod attention_kept;
mod attention_tensors;
mod attention_tile;
mod cache;
mod compose;
mod decode_place;
mod elementwise;
mod linear;
mod linear_tile;
mod loss;
mod matvec;
mod norm;
mod optimizer;
mod sample;
mod softmax;
mod spec;
mod tuned;
mod unroll;
mod unrolled;
mod weights;

pub use crate::format::WriteMode;
pub use attention::{
    AttentionShape, KeyValueOwner, attention_backward_key_value,
    attention_backward_key_value_with_tile, attention_backward_query,
    attention_backward_query_with_tile, attention_delta, attention_forward,
    attention_forward_with_tile, attention_group_sum, key_value_owner,
};
pub use attention_decode::{
    DecodeSplits, PARTIAL_STATE, RANGE_KEYS, SplitReason, attention_decode, attention_decode_merge,
    attention_decode_merge_tensors, attention_decode_tensors, decode_splits,
};
pub use attention_kept::{
    attention_backward_key_value_kept, attention_backward_query_kept, attention_kept,
};
pub use attention_tensors::{
    DenseMask, Element, Geometry, Strides, attention_delta_tensors, attention_tensors,
};
pub use attention_tile::{AttentionPass, AttentionTile, attention_tiles};
pub use cache::{KvCache, cache_append, cache_expand, ring_rows};
pub use compose::{Access, Binding, Grid, Kernel, Wgsl};
pub use elementwise::{
    ActivationWidth, copy_row, embedding_backward, embedding_forward, gated_activation,
    gated_activation_backward, initialize, rope, zero,
};
pub use linear::{Form, Linear, LinearShape, LinearSum, Output, linear, linear_with_tile};
pub use linear_tile::{LinearPick, LinearTile, linear_candidates, linear_tiles};
pub use loss::{cross_entropy, loss_sum};
pub use matvec::{MatvecInput, MatvecOutput, MatvecShape, matvec, matvec_fuses};
pub use norm::{
    column_sum, head_norm_backward, head_norm_forward, norm_rows, rms_norm_backward,
    rms_norm_forward,
};
pub use optimizer::{GRAD_NORM_GROUPS, adamw, grad_norm, step_decision};
pub use sample::sample;
pub use softmax::{RowPlace, softmax, softmax_unit};
pub use spec::{Constant, KernelSpec};
pub use tuned::TunedProduct;
pub use weights::{WeightFormat, pack_weights, unpack_weights};

use crate::caps::Capabilities;
use crate::error::{Error, Result};

/// The largest power of two up to `wanted` that the device allows as a workgroup size.
///
/// # Errors
/// `limit-exceeded` when not even `least` fits.
pub(super) fn workgroup_size(
    caps: &Capabilities,
    wanted: u32,
    least: u32,
    what: &str,
) -> Result<u32> {
    let allowed = caps.limits.workgroup_invocations();
    if allowed < least {
        let name = "maxComputeInvocationsPerWorkgroup";
        return Err(Error::limit(name, u64::from(allowed), u64::from(least), what));
    }
    Ok(wanted.min(1 << allowed.ilog2()))
}

/// Invocations of a workgroup that reduces one row of `columns` elements. A CPU runs one subgroup
/// of a workgroup at a time and pays for each switch at a barrier: there a workgroup is a subgroup.
fn row_workgroup(caps: &Capabilities, columns: usize, what: &str) -> Result<u32> {
    // The reduction costs log2(workgroup) barriers: no more invocations than a quarter of the row
    // can keep busy, at least one wide subgroup.
    let wanted = if caps.software {
        caps.subgroup_size[0].clamp(4, 8)
    } else {
        (columns / 4).next_power_of_two().clamp(64, 256) as u32
    };
    let size = workgroup_size(caps, wanted, 1, what)?;
    check_storage(caps, 4 * size, what)?;
    Ok(size)
}

/// Fails with the limit's name when a kernel's workgroup memory does not fit.
pub(super) fn check_storage(caps: &Capabilities, bytes: u32, what: &str) -> Result<()> {
    let have = caps.limits.max_compute_workgroup_storage_size;
    if bytes > have {
        let name = "maxComputeWorkgroupStorageSize";
        return Err(Error::limit(name, u64::from(have), u64::from(bytes), what));
    }
    Ok(())
}

/// The reduction module for a workgroup, and why it was chosen.
pub(super) fn reduction(caps: &Capabilities) -> (bool, &'static str) {
    if caps.reduces_by_subgroup() {
        (true, "subgroups of known id: one barrier pair a reduction")
    } else {
        (false, "no subgroups with ids: binary tree through workgroup memory")
    }
}
