//!Cross-entropy over the vocabulary, its sum, and the soft cap of logits.

use super::compose::{Composer, Grid, Kernel, read, read_write, shader, uniform};
use super::elementwise::{composer, finish};
use super::limits::{reduction, row_workgroup, variant};
use super::shape::Constant;
use super::spec::KernelSpec;
use crate::caps::Capabilities;
use crate::error::Result;

/// `cross_entropy_backward` (loss, and dLogits in place) or, without `gradient`,
/// `cross_entropy_forward` (loss only), of logits that are squashed into ± `soft_cap` first if there is
/// one. Grid: one workgroup per row.
pub fn cross_entropy(
    caps: &Capabilities,
    vocabulary: usize,
    gradient: bool,
    soft_cap: Option<f64>,
) -> Result<Kernel> {
    let spec = KernelSpec::CrossEntropy { vocabulary, gradient, soft_cap: soft_cap.map(Constant) };
    let (subgroups, why) = reduction(caps);
    let size = row_workgroup(caps, vocabulary, spec.name())?;
    let grid = Grid::Flat { rows: 1, per_block: 1, per_group: 1 };
    let (composer, form) = match soft_cap {
        None => (Composer::new(spec, size).module(shader!("lib/logit/plain")), ""),
        Some(cap) => (capped(Composer::new(spec, size), cap), ", soft cap"),
    };
    composer
        .size("VOCABULARY", vocabulary)
        .flag("GRADIENT", gradient)
        .module(shader!("lib/step"))
        .module(shader!("lib/range"))
        .module(shader!("lib/flat"))
        .reduction(subgroups)
        .module(shader!("07_cross_entropy"))
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
            variant(subgroups) + form,
            why,
        )
}

fn capped(composer: Composer, cap: f64) -> Composer {
    composer
        .float("SOFT_CAP", cap as f32)
        .module(shader!("lib/math"))
        .module(shader!("lib/logit/capped"))
}

/// `soft_cap_forward` over rows of `columns` logits. Grid: `tokens · columns` invocations.
pub fn soft_cap(caps: &Capabilities, columns: usize, cap: f64) -> Result<Kernel> {
    let spec = KernelSpec::SoftCap { columns, cap: Constant(cap) };
    let composer =
        capped(composer(caps, spec)?.size("COLUMNS", columns), cap).module(shader!("07_soft_cap"));
    finish(composer, caps, &[read_write("logits"), uniform("step")], columns)
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
