//! What a step needs besides its own plan where somebody else computes the gradient.

use crate::caps::Capabilities;
use crate::error::Result;
use crate::kernels::{self as k, Constant};
use crate::plan::{Buffer, Builder, Launch, Phase, Plan, Range, Slice};

/// Multiplies rows of `columns` elements by a factor, in place: all of a slice, whatever the batch.
///
/// # Errors
/// `limit-exceeded` where the slice does not fit a binding.
pub fn scale_plan(caps: &Capabilities, slice: Slice, columns: usize, factor: f64) -> Result<Plan> {
    let rows = slice.bytes as usize / 4 / columns;
    let mut builder = Builder::new(caps, Phase::Backward, rows, Buffer::Step);
    let kernel = builder.kernel(k::Scale { columns, factor: Constant(factor) })?;
    dispatch(builder, Launch::new("given gradient scale", kernel).bind("rows", slice), rows)
}

/// Sets a slice to zeros.
///
/// # Errors
/// `limit-exceeded` where the slice does not fit a binding.
pub fn zero_plan(caps: &Capabilities, slice: Slice) -> Result<Plan> {
    let mut builder = Builder::new(caps, Phase::Backward, 1, Buffer::Step);
    let kernel = builder.kernel(k::Zero { count: slice.bytes as usize / 4 })?;
    dispatch(builder, Launch::new("logits zero", kernel).bind("data", slice), 1)
}

fn dispatch(mut builder: Builder<'_>, launch: Launch, rows: usize) -> Result<Plan> {
    let step = builder.fixed_step(rows);
    let all = Range { row0: 0, rows: rows as u32, col0: 0, cols: 0 };
    builder.dispatch(launch.rows(all).bind("step", step))?;
    Ok(builder.finish(&[]))
}
