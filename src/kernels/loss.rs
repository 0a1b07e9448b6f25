//! Cross-entropy over the vocabulary, and its sum.

use super::compose::{Binding::*, Composer, Grid, Kernel, shader};
use super::norm::variant;
use super::{reduction, row_workgroup};
use crate::caps::Capabilities;
use crate::error::Result;

/// `cross_entropy_backward` (loss, and dLogits in place) or, without `gradient`,
/// `cross_entropy_forward` (loss only). Grid: one workgroup per row.
pub fn cross_entropy(caps: &Capabilities, vocabulary: usize, gradient: bool) -> Result<Kernel> {
    let name = if gradient { "cross_entropy_backward" } else { "cross_entropy_forward" };
    let (subgroups, why) = reduction(caps);
    let size = row_workgroup(caps, vocabulary, name)?;
    let grid = Grid::Flat { rows: 1, per_block: 1, per_group: 1 };
    Composer::new(name, size)
        .size("VOCABULARY", vocabulary)
        .flag("GRADIENT", gradient)
        .module(shader!("lib/step"))
        .module(shader!("lib/range"))
        .module(shader!("lib/flat"))
        .reduction(subgroups)
        .module(shader!("07_cross_entropy"))
        .finish(
            caps,
            &[ReadWrite, Read, ReadWrite, Uniform, Uniform],
            grid,
            variant(subgroups),
            why,
        )
}

/// `loss_sum_forward`. Grid: one workgroup.
pub fn loss_sum(caps: &Capabilities) -> Result<Kernel> {
    let name = "loss_sum_forward";
    let (subgroups, why) = reduction(caps);
    Composer::new(name, row_workgroup(caps, 1024, name)?)
        .module(shader!("lib/step"))
        .reduction(subgroups)
        .module(shader!("07_loss_sum"))
        .finish(
            caps,
            &[Read, Read, ReadWrite, Uniform],
            Grid::Fixed { x: 1, y: 1 },
            variant(subgroups),
            why,
        )
}
