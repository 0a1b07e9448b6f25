//! Dropout: a share of the elements is left out.

#[cfg(feature = "testing")]
pub(crate) mod cases;
#[cfg(feature = "testing")]
pub(crate) mod twin;

use super::compose::{Composer, Kernel, Spec, read, read_write, uniform};
use super::shape::Constant;
use crate::caps::Capabilities;
use crate::error::Result;
use crate::format::WriteMode;

/// Leaves out a share of the elements of rows of `columns`. With `residual` it adds other rows to the rest. Grid: an
/// invocation for four elements of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DropoutForward {
    pub columns: usize,
    pub rate: Constant,
    pub mode: WriteMode,
    pub residual: bool,
}

impl Spec for DropoutForward {
    fn name(&self) -> &'static str {
        "dropout_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { columns, rate: Constant(rate), mode, residual } = *self;
        let blocks = columns.div_ceil(4);
        let composer = Composer::flat(caps, *self)?
            .size("COLUMNS", columns)
            .size("ROW_BLOCKS", blocks)
            .size("THRESHOLD", dropout_threshold(rate))
            .size("WRITE_MODE", mode.constant() as usize)
            .float("SCALE", (1.0 / (1.0 - rate)) as f32)
            .when("RESIDUAL", residual);
        let mut bindings =
            vec![read("input"), read_write("output"), uniform("step"), uniform("range")];
        bindings.extend(residual.then_some(read("residual")));
        composer.by_row(caps, "00_dropout", &bindings, blocks)
    }
}

/// What is left out has a random word below this.
pub(super) fn dropout_threshold(rate: f64) -> usize {
    (rate * f64::from(1 << 16) * f64::from(1 << 16)) as u32 as usize
}
