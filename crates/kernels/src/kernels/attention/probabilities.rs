//! The probabilities of attention, for who looks into a model: attention itself never stores them.

use super::operands::{common, fused_rows};
use crate::caps::Capabilities;
use crate::error::Result;
use crate::kernels::compose::{Composer, Grid, Kernel, Spec, read, read_write, uniform};
use crate::kernels::limits::workgroup_size;
use crate::kernels::modules::key_rows;
use crate::kernels::shape::CacheAttention;

/// How much the queries of one head in fused rows attend to each key of a cache in f32; the head is a run-time value.
/// Bindings: query, keys, documents, lse, probabilities, step, probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionProbabilities {
    pub attention: CacheAttention,
}

/// How much the queries of one head of a whole text attend to each key. The rows are among those of all heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionShares {
    pub attention: CacheAttention,
}

fn probabilities(
    caps: &Capabilities,
    spec: impl Spec,
    attention: CacheAttention,
    shares: bool,
) -> Result<Kernel> {
    let CacheAttention { shape, scores, window, ring } = attention;
    let size = workgroup_size(caps, 64, 1, spec.name())?;
    let composer = fused_rows(common(Composer::new(spec, size), shape, scores, window), None);
    let composer = key_rows(composer, ring)
        .size("Q_STRIDE", shape.stride())
        .size("KV_STRIDE", shape.cache_stride())
        .when("SHARES", shares)
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

impl Spec for AttentionProbabilities {
    fn name(&self) -> &'static str {
        "attention_probabilities_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        probabilities(caps, *self, self.attention, false)
    }

    fn flops_per_cached_key(&self) -> f64 {
        2.0 * self.attention.shape.head_dim as f64
    }
}

impl Spec for AttentionShares {
    fn name(&self) -> &'static str {
        "attention_probabilities_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        probabilities(caps, *self, self.attention, true)
    }

    fn flops_per_cached_key(&self) -> f64 {
        2.0 * self.attention.shape.head_dim as f64
    }
}
