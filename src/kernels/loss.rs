//! Cross-entropy over the vocabulary, and its sum.

use super::compose::{Composer, Grid, Kernel, Module, read, read_write, shader, uniform};
use super::limits::{reduction, row_workgroup, variant};
use super::shape::Objective;
use super::spec::KernelSpec;
use crate::caps::Capabilities;
use crate::error::Result;

/// `cross_entropy_backward` (loss, and dLogits in place) or, without `gradient`,
/// `cross_entropy_forward` (loss only). Grid: one workgroup per row.
pub fn cross_entropy(caps: &Capabilities, vocabulary: usize, gradient: bool) -> Result<Kernel> {
    let spec = KernelSpec::CrossEntropy { vocabulary, gradient };
    by_rows(caps, spec, vocabulary, shader!("07_cross_entropy"), &|composer| {
        composer.flag("GRADIENT", gradient)
    })
}

/// `smoothed_cross_entropy_backward`: the same for an objective with label smoothing and a z-loss. Grid: one
/// workgroup per row.
pub fn smoothed_cross_entropy(
    caps: &Capabilities,
    vocabulary: usize,
    objective: Objective,
) -> Result<Kernel> {
    let spec = KernelSpec::SmoothedCrossEntropy { vocabulary, objective };
    by_rows(caps, spec, vocabulary, shader!("07_smoothed_cross_entropy"), &|composer| {
        composer
            .float("SMOOTHING", objective.label_smoothing.0 as f32)
            .float("Z_LOSS", objective.z_loss.0 as f32)
    })
}

/// A kernel with a workgroup per row of logits, and its own constants.
fn by_rows(
    caps: &Capabilities,
    spec: KernelSpec,
    vocabulary: usize,
    module: &'static Module,
    constants: &dyn Fn(Composer) -> Composer,
) -> Result<Kernel> {
    let (subgroups, why) = reduction(caps);
    let size = row_workgroup(caps, vocabulary, spec.name())?;
    let grid = Grid::Flat { rows: 1, per_block: 1, per_group: 1 };
    constants(Composer::new(spec, size).size("VOCABULARY", vocabulary))
        .module(shader!("lib/step"))
        .module(shader!("lib/range"))
        .module(shader!("lib/flat"))
        .reduction(subgroups)
        .module(module)
        .finish(
            caps,
            &[
                read_write("logits"),
                read("targets"),
                read_write("losses"),
                uniform("step"),
                uniform("range"),
            ],
            grid,
            variant(subgroups),
            why,
        )
}

/// `loss_sum_forward`. Grid: one workgroup.
pub fn loss_sum(caps: &Capabilities) -> Result<Kernel> {
    let spec = KernelSpec::LossSum;
    let (subgroups, why) = reduction(caps);
    Composer::new(spec, row_workgroup(caps, 1024, spec.name())?)
        .module(shader!("lib/step"))
        .reduction(subgroups)
        .module(shader!("07_loss_sum"))
        .finish(
            caps,
            &[read("losses"), read("targets"), read_write("metrics"), uniform("step")],
            Grid::Fixed { x: 1, y: 1 },
            variant(subgroups),
            why,
        )
}
