//! The probabilities of attention, for who looks into a model: attention itself never stores them.

use super::operands::{common, fused_rows};
use super::specs::AttentionProbabilities;
use crate::caps::Capabilities;
use crate::error::Result;
use crate::kernels::compose::{Composer, Grid, Kernel, Spec, read, read_write, uniform};
use crate::kernels::limits::workgroup_size;
use crate::kernels::modules::key_rows;
use crate::kernels::shape::AttentionShape;
use crate::kernels::spec::KernelSpec;

/// `attention_probabilities_forward`: of one head's queries in fused rows to the keys of a cache in f32.
/// Bindings: query, keys, documents, lse, probabilities, step, probe.
///
/// # Errors
/// `limit-exceeded` when not even one invocation fits.
pub fn attention_probabilities(caps: &Capabilities, shape: AttentionShape) -> Result<Kernel> {
    let spec = KernelSpec::from(AttentionProbabilities { shape });
    let size = workgroup_size(caps, 64, 1, spec.name())?;
    let composer = fused_rows(common(Composer::new(spec, size), shape), None);
    let composer = key_rows(composer, shape.ring)
        .size("Q_STRIDE", shape.stride())
        .size("KV_STRIDE", shape.cache_stride())
        .module("05_attention_probabilities");
    let bindings = [
        read("query"),
        read("keys"),
        read("documents"),
        read("lse"),
        read_write("probabilities"),
        uniform("step"),
        uniform("probe"),
    ];
    let reason = "one workgroup per row, up to 64 invocations; each key has one of them";
    composer.finish(caps, &bindings, Grid::RowsByX { rows: 1, y: 1 }, "row", reason)
}
