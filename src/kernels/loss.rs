//! Cross-entropy over the vocabulary, its sum, and the soft cap of logits.

use super::compose::{Composer, Grid, Kernel, read, read_write, uniform};
use super::elementwise;
use super::limits::{reduction, row_workgroup, variant};
use super::shape::{Constant, LogitRow, Objective};
use super::spec::KernelSpec;
use crate::caps::Capabilities;
use crate::error::Result;

/// `cross_entropy_backward` (loss, and dLogits in place) or, without `gradient`,
/// `cross_entropy_forward` (loss only). Grid: one workgroup per row.
pub fn cross_entropy(caps: &Capabilities, row: LogitRow, gradient: bool) -> Result<Kernel> {
    let spec = KernelSpec::CrossEntropy { row, gradient };
    let constants = |composer: Composer| composer.flag("GRADIENT", gradient);
    by_rows(caps, spec, row, &constants, "07_cross_entropy")
}

/// `objective_cross_entropy_backward`, or without `gradient` `objective_cross_entropy_forward`: the same for an
/// objective with label smoothing and a z-loss, and for logits that are squashed into ± `cap` first. Grid: one
/// workgroup per row.
pub fn objective_cross_entropy(
    caps: &Capabilities,
    row: LogitRow,
    gradient: bool,
    objective: Objective,
    cap: Option<f64>,
) -> Result<Kernel> {
    let cap_of_spec = cap.map(Constant);
    let spec = KernelSpec::ObjectiveCrossEntropy { row, gradient, objective, cap: cap_of_spec };
    let constants = |composer: Composer| {
        let composer = composer
            .flag("GRADIENT", gradient)
            .float("SMOOTHING", objective.label_smoothing.0 as f32)
            .float("Z_LOSS", objective.z_loss.0 as f32);
        match cap {
            Some(cap) => composer.when("CAPPED", true).float("SOFT_CAP", cap as f32),
            None => composer.when("CAPPED", false),
        }
    };
    by_rows(caps, spec, row, &constants, "07_objective_cross_entropy")
}

/// `soft_cap_forward` over rows of `columns` logits. Grid: `tokens · columns` invocations.
pub fn soft_cap(caps: &Capabilities, columns: usize, cap: f64) -> Result<Kernel> {
    let spec = KernelSpec::SoftCap { columns, cap: Constant(cap) };
    let composer = elementwise::composer(caps, spec)?
        .size("COLUMNS", columns)
        .float("SOFT_CAP", cap as f32)
        .when("CAPPED", true)
        .module("07_soft_cap");
    elementwise::finish(composer, caps, &[read_write("logits"), uniform("step")], columns)
}

/// Most loads of logits that an invocation has in flight. A workgroup of 256 is too few invocations to
/// hide the wait for memory: on an H100, 64 rows of 151,936 took 540 µs with one and 135 with eight.
const LOADS: usize = 8;

/// Adds the constants of a row of logits.
pub(super) fn vocabulary_of(
    caps: &Capabilities,
    composer: Composer,
    vocabulary: usize,
) -> Composer {
    let most = if caps.software { 1 } else { LOADS };
    let loads = (vocabulary / composer.workgroup_size()).clamp(1, most);
    composer.size("VOCABULARY", vocabulary).unrolled("LOADS", loads)
}

/// A kernel with a workgroup per row of logits, its own constants.
fn by_rows(
    caps: &Capabilities,
    spec: KernelSpec,
    row: LogitRow,
    constants: &dyn Fn(Composer) -> Composer,
    kernel: &'static str,
) -> Result<Kernel> {
    let (subgroups, why) = reduction(caps);
    let size = row_workgroup(caps, row.vocabulary, spec.name())?;
    let grid = Grid::Flat { rows: 1, per_block: 1, per_group: 1 };
    let composer =
        vocabulary_of(caps, Composer::new(spec, size), row.vocabulary).size("STRIDE", row.stride);
    constants(composer).reduction(subgroups).module(kernel).finish(
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
        .reduction(subgroups)
        .module("07_loss_sum")
        .finish(
            caps,
            &[read("losses"), read("targets"), read_write("metrics"), uniform("step")],
            Grid::Fixed { x: 1, y: 1 },
            variant(subgroups),
            why,
        )
}
