//! RMSNorm, forward and backward.

use super::compose::{Binding::*, Composer, Grid, Kernel, shader};
use super::{WriteMode, reduction, row_workgroup, workgroup_size};
use crate::caps::Capabilities;
use crate::error::Result;

/// Rows that one workgroup of `rms_norm_backward` folds into one partial weight gradient.
pub const NORM_ROWS: usize = 8;

/// `rms_norm_forward` over rows of `hidden` elements. Grid: one workgroup a row.
pub fn rms_norm_forward(caps: &Capabilities, hidden: usize, epsilon: f64) -> Result<Kernel> {
    let name = "rms_norm_forward";
    let (subgroups, why) = reduction(caps);
    let size = row_workgroup(caps, hidden, name)?;
    let grid = Grid::Flat { rows: 1, per_block: 1, per_group: 1 };
    Composer::new(name, size)
        .size("HIDDEN", hidden)
        .float("EPSILON", epsilon as f32)
        .module(shader!("lib/step"))
        .module(shader!("lib/flat"))
        .reduction(subgroups)
        .module(shader!("02_rms_norm_forward"))
        .finish(caps, &[Read, Read, ReadWrite, Uniform], grid, variant(subgroups), why)
}

/// `rms_norm_backward` over rows of `hidden` elements; `mode` says how `d_x` is written. Grid: one
/// workgroup for [`NORM_ROWS`] rows.
pub fn rms_norm_backward(
    caps: &Capabilities,
    hidden: usize,
    epsilon: f64,
    mode: WriteMode,
) -> Result<Kernel> {
    let name = "rms_norm_backward";
    let (subgroups, why) = reduction(caps);
    let size = row_workgroup(caps, hidden, name)?;
    let grid = Grid::Flat { rows: NORM_ROWS, per_block: 1, per_group: 1 };
    Composer::new(name, size)
        .size("HIDDEN", hidden)
        .size("ROWS", NORM_ROWS)
        .size("COLUMNS", hidden.div_ceil(size as usize))
        .size("WRITE_MODE", mode.constant() as usize)
        .float("EPSILON", epsilon as f32)
        .module(shader!("lib/step"))
        .module(shader!("lib/flat"))
        .module(shader!("lib/write_mode"))
        .reduction(subgroups)
        .module(shader!("02_rms_norm_backward"))
        .finish(
            caps,
            &[Read, Read, Read, ReadWrite, ReadWrite, Uniform],
            grid,
            variant(subgroups),
            why,
        )
}

/// `column_sum_forward`: adds up the partial weight gradients. Grid: `hidden` invocations.
pub fn column_sum(caps: &Capabilities, hidden: usize) -> Result<Kernel> {
    let name = "column_sum_forward";
    let size = workgroup_size(caps, 64, 1, name)?;
    let grid = Grid::Fixed { x: hidden.div_ceil(size as usize) as u32, y: 1 };
    Composer::new(name, size)
        .size("HIDDEN", hidden)
        .size("ROWS", NORM_ROWS)
        .size("WRITE_MODE", WriteMode::AddAfterFirst.constant() as usize)
        .module(shader!("lib/step"))
        .module(shader!("lib/flat"))
        .module(shader!("lib/write_mode"))
        .module(shader!("02_column_sum"))
        .finish(
            caps,
            &[Read, ReadWrite, Uniform],
            grid,
            "flat",
            "one invocation a column: small workgroups spread",
        )
}

pub(super) fn variant(subgroups: bool) -> String {
    if subgroups { "subgroup".into() } else { "tree".into() }
}
