//! Twins of an adapter's products.

use super::{LowRankProduct, LowRankSide, LowRankWeights};
use crate::error::Result;
use crate::twins::{Operands, Real, Twin, dot};

/// Elements of rows of `tokens` tokens that a product gives, with their places in the result, row by row.
pub fn low_rank_product<R: Real>(
    of: &LowRankProduct,
    rows: &[R],
    weights: &[R],
    tokens: usize,
) -> Vec<(usize, R)> {
    let [row, result] = of.strides();
    let matrix_row = if of.side == LowRankSide::A { of.shape.inputs } else { of.shape.rank };
    let scale = R::from_f64(of.scale.0);
    let mut found: Vec<(usize, R)> = vec![];
    for t in 0..tokens {
        let start = found.len();
        for (index, term) in of.terms().enumerate() {
            let from = &rows[t * row + term.from..][..term.depth];
            for n in 0..term.width {
                let sum = if of.backward {
                    let column = |k: usize| weights[term.at + k * matrix_row + n];
                    from.iter().enumerate().map(|(k, &x)| x * column(k)).sum()
                } else {
                    dot(from, &weights[term.at + n * matrix_row..][..term.depth])
                };
                if index > 0 && of.sums_modules() {
                    found[start + n].1 += scale * sum;
                } else {
                    found.push((t * result + term.to + n, scale * sum));
                }
            }
        }
    }
    found
}

/// The gradients of A and B, with their places among what is bound.
pub fn low_rank_weights<R: Real>(
    of: &LowRankWeights,
    [x, d_z, d_y, z]: [&[R]; 4],
    tokens: usize,
) -> Vec<(usize, R)> {
    let shape = &of.shape;
    let product = |a: &[R], b: &[R], [i, j]: [usize; 2], [a_row, b_row]: [usize; 2]| -> R {
        (0..tokens).map(|t| a[t * a_row + i] * b[t * b_row + j]).sum()
    };
    let mut found = vec![];
    for module in shape.modules() {
        if of.has(LowRankSide::A) {
            for (r, k) in (0..shape.rank).flat_map(|r| (0..shape.inputs).map(move |k| (r, k))) {
                let sum = product(d_z, x, [module.short + r, k], [shape.short, shape.inputs]);
                found.push((module.a + r * shape.inputs + k, sum));
            }
        }
        if of.has(LowRankSide::B) {
            for (n, r) in (0..module.columns).flat_map(|n| (0..shape.rank).map(move |r| (n, r))) {
                let places = [module.column + n, module.short + r];
                let sum = product(d_y, z, places, [shape.outputs, shape.short]);
                found.push((module.b + n * shape.rank + r, sum));
            }
        }
    }
    found
}

/// Writes elements to their places.
fn put(on: &mut Operands<'_>, name: &str, elements: &[(usize, f32)], adds: bool) -> Result<()> {
    elements.iter().try_for_each(|&(at, x)| on.write_by(name, at, &[x], adds))
}

impl Twin for LowRankProduct {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let (rows, adds) = (on.read_as("rows", self.rows)?, on.adds(self.mode)?);
        let product = low_rank_product(self, &rows, on.f32("weights")?, on.tokens()?);
        put(on, "result", &product, adds)
    }
}

impl Twin for LowRankWeights {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let [x, d_y] =
            [("x", 0), ("d_y", 1)].map(|(name, index)| on.read_as(name, self.rows[index]));
        let (x, d_y, adds) = (x?, d_y?, on.adds(self.mode)?);
        let operands = [&x, on.f32("d_z")?, &d_y, on.f32("z")?];
        let gradients = low_rank_weights(self, operands, on.tokens()?);
        put(on, "gradient", &gradients, adds)
    }
}
