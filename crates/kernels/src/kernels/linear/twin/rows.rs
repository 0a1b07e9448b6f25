//! The twins of products with one row, and with a few.

use super::{bias_forward, matvec_forward};
use crate::error::Result;
use crate::format::WeightFormat;
use crate::kernels::activation::twin::gated_activation_forward;
use crate::kernels::attention::twin::decode::merged;
use crate::kernels::cache::twin::cache_row;
use crate::kernels::linear::{Matvec, MatvecInput, MatvecOutput, MatvecRows};
use crate::kernels::norm::twin::rms_norm_forward;
use crate::kernels::rope::twin::rotated;
use crate::kernels::shape::{CacheRows, RopeShape};
use crate::kernels::weights::twin::unpack_weights_forward;
use crate::twins::{Operands, Twin, add_assign, cast};

/// A matrix that rows are multiplied by, packed or not.
pub(crate) fn matrix_of_rows(
    on: &Operands,
    weights: WeightFormat,
    (rows, k): (usize, usize),
) -> Result<Vec<f32>> {
    if weights.packs(k) {
        return Ok(cast(&unpack_weights_forward(weights, on.u32("packed")?, rows * k)));
    }
    Ok(on.first("b", rows * k)?.to_vec())
}

impl Twin for Matvec {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Matvec { n, k, first, input, output, weights } = *self;
        let rows = n * output.products();
        let matrix = matrix_of_rows(on, weights, (rows, k))?;
        let a = match input {
            MatvecInput::Plain => on.first("a", k)?.to_vec(),
            MatvecInput::Norm { epsilon } => {
                rms_norm_forward(on.first("a", k)?, on.first("norm_weight", k)?, epsilon.0)
            }
            MatvecInput::PartialSoftmax(heads, splits, newest) => {
                merged(on, &heads, splits.count, newest)?
            }
        };
        let y = matvec_forward(&a, &matrix, None);
        match output {
            MatvecOutput::Added => on.write_by("c", first, &y, true),
            MatvecOutput::Plain
            | MatvecOutput::Bias
            | MatvecOutput::Residual
            | MatvecOutput::BiasedResidual => {
                let mut sum = y;
                if output.has_residual() {
                    add_assign(&mut sum, &on.f32("residual")?[first..first + n]);
                }
                if output.is_biased() {
                    add_assign(&mut sum, &on.f32("bias")?[first..first + n]);
                }
                on.write("c", first, &sum)
            }
            MatvecOutput::Gated(activation) => {
                on.write("c", first, &gated_activation_forward(activation, &y, n))
            }
            MatvecOutput::Heads(heads) => {
                let position = on.step()?.position as usize;
                to_heads(on, &heads, y, ["c", "angles"], (position, [0, 0]))
            }
            MatvecOutput::BiasedHeads(heads) => {
                let mut row = y;
                bias_forward(&mut row, on.first("bias", heads.shape.stride())?);
                let position = on.step()?.position as usize;
                to_heads(on, &heads, row, ["c", "angles"], (position, [0, 0]))
            }
        }
    }
}

impl Twin for MatvecRows {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let MatvecRows { n, k, stride, input, output, weights, .. } = *self;
        let products = n * output.products();
        let matrix = matrix_of_rows(on, weights, (products, k))?;
        let heads = match output {
            MatvecOutput::Heads(heads) | MatvecOutput::BiasedHeads(heads) => Some(heads),
            _ => None,
        };
        let (rows, column) = match heads {
            Some(_) => (on.tokens()?, 0),
            None => (on.range()?.rows as usize, on.range()?.col0 as usize),
        };
        for row in 0..rows {
            let at = row * stride + column;
            let mut a = on.f32("a")?[row * k..][..k].to_vec();
            if let MatvecInput::Norm { epsilon } = input {
                a = rms_norm_forward(&a, on.first("norm_weight", k)?, epsilon.0);
            }
            let mut y = matvec_forward(&a, &matrix, None);
            if matches!(output, MatvecOutput::Residual | MatvecOutput::BiasedResidual) {
                add_assign(&mut y, &on.f32("residual")?[at..at + n]);
            }
            if matches!(output, MatvecOutput::Bias | MatvecOutput::BiasedResidual) {
                add_assign(&mut y, &on.f32("bias")?[column..column + n]);
            }
            if let MatvecOutput::Gated(activation) = output {
                y = gated_activation_forward(activation, &y, n);
            }
            if let MatvecOutput::BiasedHeads(shape) = output {
                bias_forward(&mut y, on.first("bias", shape.shape.stride())?);
            }
            match heads {
                None => on.write("c", at, &y)?,
                Some(shape) => {
                    let position = (row as u32).wrapping_sub(on.u32("documents")?[row]) as usize;
                    let apart = on.step()?.reserved[0] as usize;
                    to_heads(on, &shape, y, ["c", "table"], (position, [at, row * apart]))?;
                }
            }
        }
        Ok(())
    }
}

/// The fused row of a token at `position` of its text: query heads to `c` from `query` on, keys and values into the part
/// of the cache that begins at row `first`. The operand `turned_by` has the angles of all positions, or those of this one
/// alone.
pub(crate) fn to_heads(
    on: &mut Operands,
    rows: &CacheRows,
    mut fused: Vec<f32>,
    [query_to, turned_by]: [&str; 2],
    (position, [query, first]): (usize, [usize; 2]),
) -> Result<()> {
    let shape = rows.shape;
    let heads = shape.heads + shape.kv_heads;
    let head_dim = shape.head_dim;
    let turned = RopeShape { heads, head_dim, dims: head_dim, stride: shape.stride() };
    let row = if turned_by == "angles" { 0 } else { position };
    rotated(&mut fused, turned, on.f32(turned_by)?, |_| row, true);
    let (queries, key_value) = fused.split_at(shape.width());
    on.write(query_to, query, queries)?;
    let at = (first + cache_row(rows, position)) * shape.cache_stride();
    on.write("cache", at, key_value)
}
