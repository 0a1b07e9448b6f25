//! The probabilities of attention, for who looks into a model: attention itself never stores them.

use super::operands::{common, fused_rows};
use crate::caps::Capabilities;
use crate::error::Result;
use crate::kernels::compose::{Composer, Grid, Kernel, Spec, read, read_write, uniform};
use crate::kernels::limits::workgroup_size;
use crate::kernels::modules::key_rows;
use crate::kernels::shape::AttentionShape;

/// How much the queries of one head in fused rows attend to each key of a cache in f32; the head is a run-time value.
/// Bindings: query, keys, documents, lse, probabilities, step, probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionProbabilities {
    pub shape: AttentionShape,
}

impl Spec for AttentionProbabilities {
    fn name(&self) -> &'static str {
        "attention_probabilities_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { shape } = *self;
        let size = workgroup_size(caps, 64, 1, self.name())?;
        let composer = fused_rows(common(Composer::new(*self, size), shape), None);
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

    fn flops_per_cached_key(&self) -> f64 {
        2.0 * self.shape.head_dim as f64
    }
}
