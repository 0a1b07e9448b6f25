//! One product by itself, for its time.

use super::builder::Builder;
use super::{Buffer, Phase, Plan, Range};
use crate::caps::Capabilities;
use crate::error::Result;
use crate::kernels::{
    Form, LinearPick, LinearProduct, LinearShape, Output, WeightFormat, WriteMode,
};

/// A product by a given tile and split, over operands in slots of its own or in `slots`.
///
/// # Errors
/// `limit-exceeded` when an operand or the kernel does not fit the device.
pub fn product_plan(
    caps: &Capabilities,
    shape: &LinearShape,
    pick: LinearPick,
    slots: &[u64],
) -> Result<Plan> {
    let LinearShape { form, n, k, a_stride, c_stride, tokens, b: format, .. } = *shape;
    let mut builder = Builder::new(caps, Phase::Forward, tokens, Buffer::Step);
    let of_tokens = form == Form::MatmulAt;
    let mut operand =
        |what, rows: usize, columns: usize| builder.tensor(what, rows as u64 * columns as u64);
    let a = operand("operand a", tokens, a_stride)?;
    let rows = if of_tokens { tokens } else { k };
    let words =
        if format == WeightFormat::F32 { rows * n } else { format.bytes(rows, n) as usize / 4 };
    let b = operand("operand b", 1, words)?;
    let c = operand("result", if of_tokens { k } else { tokens }, c_stride)?;
    let cols = if form == Form::MatmulT { n } else { k };
    let range = Range { cols: cols as u32, ..builder.all_rows() };
    let LinearPick { tile, splits, .. } = pick;
    let output = Output::Mode(WriteMode::Overwrite);
    let product = LinearProduct { shape: *shape, output, splits, tile: Some(tile) };
    builder.product_by("product", product, [a, b, c], &[], (None, range), None)?;
    Ok(builder.finish(slots))
}
