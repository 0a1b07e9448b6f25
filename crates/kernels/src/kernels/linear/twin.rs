//! Twins of family 03: matrix products, row-major. `base` is what the product is added to: a
//! residual, or the gradient of earlier micro-steps.

pub(crate) mod rows;

use super::{AdaptedProduct, GradientParts, GradientSums, LinearProduct, LinearSum};
use crate::config::Activation;
use crate::error::Result;
use crate::format::{Element, WeightFormat, WriteMode};
use crate::kernels::activation::twin::{gated_activation_backward, gated_activation_forward};
use crate::kernels::low_rank::twin::low_rank_product;
use crate::kernels::low_rank::{LowRankProduct, LowRankShape, LowRankSide};
use crate::kernels::shape::{Constant, Output};
use crate::kernels::weights::twin::unpack_weights_forward;
use crate::products::{Form, LinearShape};
use crate::twins::{Operands, Real, Twin, add_assign, cast, dot};

/// C is M×N, summed over K.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    pub m: usize,
    pub n: usize,
    pub k: usize,
}

impl Product {
    fn start<R: Real>(self, a: &[R], b: &[R], base: Option<&[R]>) -> Vec<R> {
        assert_eq!((a.len(), b.len()), (self.m * self.k, self.k * self.n), "{self:?}");
        let c = base.map_or_else(|| vec![R::ZERO; self.m * self.n], <[R]>::to_vec);
        assert_eq!(c.len(), self.m * self.n, "{self:?}");
        c
    }
}

/// C = base + A[M, K] · B[K, N]: the gradient of a linear layer's input.
pub fn matmul<R: Real>(size: Product, a: &[R], b: &[R], base: Option<&[R]>) -> Vec<R> {
    let mut c = size.start(a, b, base);
    for (row, a_row) in c.chunks_exact_mut(size.n).zip(a.chunks_exact(size.k)) {
        for (&x, b_row) in a_row.iter().zip(b.chunks_exact(size.n)) {
            row.iter_mut().zip(b_row).for_each(|(c, &y)| *c += x * y);
        }
    }
    c
}

/// C = base + A[M, K] · B[N, K]ᵀ: a linear layer with its weight stored `[out, in]`.
pub fn matmul_t<R: Real>(size: Product, a: &[R], b: &[R], base: Option<&[R]>) -> Vec<R> {
    let mut c = size.start(a, b, base);
    for (row, a_row) in c.chunks_exact_mut(size.n).zip(a.chunks_exact(size.k)) {
        row.iter_mut().zip(b.chunks_exact(size.k)).for_each(|(c, b_row)| *c += dot(a_row, b_row));
    }
    c
}

/// C = base + A[K, M]ᵀ · B[K, N]: the gradient of a linear layer's weight, summed over tokens.
pub fn matmul_at<R: Real>(size: Product, a: &[R], b: &[R], base: Option<&[R]>) -> Vec<R> {
    let mut c = size.start(a, b, base);
    for (a_row, b_row) in a.chunks_exact(size.m).zip(b.chunks_exact(size.n)) {
        for (row, &x) in c.chunks_exact_mut(size.n).zip(a_row) {
            row.iter_mut().zip(b_row).for_each(|(c, &y)| *c += x * y);
        }
    }
    c
}

/// c = base + B[N, K] · a: [`matmul_t`] of one row.
pub fn matvec_forward<R: Real>(a: &[R], b: &[R], base: Option<&[R]>) -> Vec<R> {
    matmul_t(Product { m: 1, n: b.len() / a.len(), k: a.len() }, a, b, base)
}

/// y[t, :] += bias
pub fn bias_forward<R: Real>(y: &mut [R], bias: &[R]) {
    y.chunks_exact_mut(bias.len()).for_each(|row| add_assign(row, bias));
}

/// d_bias = Σ over rows of d_y, which has `columns` columns.
pub fn bias_backward<R: Real>(d_y: &[R], columns: usize) -> Vec<R> {
    let mut d_bias = vec![R::ZERO; columns];
    d_y.chunks_exact(columns).for_each(|row| add_assign(&mut d_bias, row));
    d_bias
}

/// Elements `columns` of each of `rows` rows, which are `stride` elements apart.
fn gathered(
    data: &[f32],
    stride: usize,
    rows: std::ops::Range<usize>,
    columns: std::ops::Range<usize>,
) -> Vec<f32> {
    rows.flat_map(|row| data[row * stride..][columns.clone()].iter().copied()).collect()
}

/// A part of K: the product of those terms alone.
fn part(
    on: &Operands,
    shape: &LinearShape,
    b: &[f32],
    terms: std::ops::Range<usize>,
) -> Result<Vec<f32>> {
    let range = on.range()?;
    let rows = range.rows_of(on.tokens()?);
    let (a, column) = (on.read_as("a", shape.a)?, range.col0 as usize);
    let LinearShape { n, k, a_stride, .. } = *shape;
    let count = terms.len();
    let of_a = |offset: usize| {
        let columns = offset + terms.start..offset + terms.end;
        gathered(&a, a_stride, 0..rows, columns)
    };
    Ok(match shape.form {
        Form::MatmulT => {
            let b = gathered(b, k, 0..n, terms.clone());
            matmul_t(Product { m: rows, n, k: count }, &of_a(0), &b, None)
        }
        Form::Matmul => {
            let b = &b[terms.start * n..terms.end * n];
            matmul(Product { m: rows, n, k: count }, &of_a(column), b, None)
        }
        Form::MatmulAt => {
            let a = gathered(&a, a_stride, terms.clone(), column..column + k);
            let b = &b[terms.start * n..terms.end * n];
            matmul_at(Product { m: k, n, k: count }, &a, b, None)
        }
    })
}

impl Twin for LinearProduct {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        self.run_with(on, None)
    }
}

impl Twin for AdaptedProduct {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        self.product.run_with(on, Some(&self.low))
    }
}

/// Rows of N sums of an adapter's terms.
fn low_rank_terms(on: &Operands, shape: &LinearShape, low: &LowRankShape) -> Result<Vec<f32>> {
    let (side, backward) = match shape.form {
        Form::MatmulT => (LowRankSide::B, false),
        _ => (LowRankSide::A, true),
    };
    let (mode, rows) = (WriteMode::Overwrite, Element::F32);
    let product = LowRankProduct { shape: *low, side, backward, scale: Constant(1.0), mode, rows };
    let tokens = on.range()?.rows_of(on.tokens()?);
    let mut sums = vec![0.0; tokens * shape.n];
    for (at, x) in low_rank_product(&product, on.f32("short_rows")?, on.f32("low_rank")?, tokens) {
        sums[at] = x;
    }
    Ok(sums)
}

impl LinearProduct {
    /// The product, with an adapter's terms if there are any: in the first part where K is split.
    fn run_with(&self, on: &mut Operands<'_>, low: Option<&LowRankShape>) -> Result<()> {
        let Self { shape, output, splits, .. } = *self;
        let more = low.map(|low| low_rank_terms(on, &shape, low)).transpose()?;
        let b = match shape.b {
            WeightFormat::F32 => on.f32("b")?.to_vec(),
            WeightFormat::F16 if shape.form == Form::MatmulAt => on.read_as("b", Element::F16)?,
            format => cast(&unpack_weights_forward(format, on.u32("b")?, shape.n * shape.k)),
        };
        let rows = on.range()?.rows_of(on.tokens()?);
        let depth = if shape.form == Form::MatmulAt { rows } else { shape.k };
        if splits == 1 {
            let mut product = part(on, &shape, &b, 0..depth)?;
            more.iter().for_each(|more| add_assign(&mut product, more));
            return store(on, &shape, output, &product);
        }
        let each = depth.div_ceil(splits);
        let m = if shape.form == Form::MatmulAt { shape.k } else { shape.tokens };
        for split in 0..splits {
            let terms = (split * each).min(depth)..((split + 1) * each).min(depth);
            let mut product = part(on, &shape, &b, terms)?;
            more.iter().filter(|_| split == 0).for_each(|more| add_assign(&mut product, more));
            for (row, terms) in product.chunks(shape.n).enumerate() {
                on.write("c", (split * m + row) * shape.part_stride(), terms)?;
            }
        }
        Ok(())
    }
}

/// Writes the gradients of gate and up, and the gate's result, where rows of N sums are the gradient of that.
fn store_gate_gradient(
    on: &mut Operands,
    shape: &LinearShape,
    activation: Activation,
    slope: &[f32],
) -> Result<()> {
    let gate_up = on.first("gate_up", 2 * slope.len())?;
    let (gradient, activated) = gated_activation_backward(activation, gate_up, slope, shape.n);
    on.write("c", 0, &gradient)?;
    on.write("activated", 0, &activated)
}

/// Writes rows of N results to C.
fn store(on: &mut Operands, shape: &LinearShape, output: Output, product: &[f32]) -> Result<()> {
    let by_columns = shape.form == Form::MatmulT;
    let column = if by_columns { on.range()?.col0 as usize } else { 0 };
    for (row, result) in product.chunks(shape.n).enumerate() {
        let at = row * shape.c_stride + column;
        match output {
            Output::Mode(mode) => {
                let adds = on.adds(mode)?;
                if adds {
                    on.write_by("c", at, result, adds)?;
                } else {
                    on.write_at("c", at, result, shape.c)?;
                }
            }
            // The gradients of all rows at once.
            Output::GateGradient(activation) => {
                return store_gate_gradient(on, shape, activation, product);
            }
            Output::Gated(activation) => {
                let gated = gated_activation_forward(activation, result, shape.n / 2);
                on.write_at("c", at, &gated, shape.c)?;
            }
            Output::Residual => {
                let mut sum = on.f32("residual")?[at..at + shape.n].to_vec();
                add_assign(&mut sum, result);
                on.write("c", at, &sum)?;
            }
            Output::Bias | Output::BiasedResidual => {
                let mut sum = on.first("bias", shape.c_stride)?[column..column + shape.n].to_vec();
                if output == Output::BiasedResidual {
                    add_assign(&mut sum, &on.f32("residual")?[at..at + shape.n]);
                }
                add_assign(&mut sum, result);
                on.write("c", at, &sum)?;
            }
        }
    }
    Ok(())
}

impl Twin for LinearSum {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Self { shape, output, splits } = *self;
        let fixed = shape.form == Form::MatmulAt;
        let rows = if fixed { shape.k } else { on.range()?.rows_of(on.tokens()?) };
        let (each, width) = (if fixed { shape.k } else { shape.tokens }, shape.part_stride());
        let mut total = vec![0.0; rows * shape.n];
        for split in 0..splits {
            let part =
                gathered(on.f32("parts")?, width, split * each..split * each + rows, 0..shape.n);
            add_assign(&mut total, &part);
        }
        store(on, &shape, output, &total)
    }
}

impl Twin for GradientSums {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let adds = on.adds(self.mode)?;
        for GradientParts { elements, count, places: [from, to] } in &self.each[..self.count] {
            let parts = &on.first("parts", from + count * elements)?[*from..];
            let mut total = vec![0.0; *elements];
            parts.chunks(*elements).for_each(|part| add_assign(&mut total, part));
            on.write_by("gradient", *to, &total, adds)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::twins::check::{assert_close, assert_gradient, noise};

    fn transpose(x: &[f64], rows: usize) -> Vec<f64> {
        let columns = x.len() / rows;
        (0..x.len()).map(|i| x[i % rows * columns + i / rows]).collect()
    }

    #[test]
    fn the_three_forms_agree() {
        for (m, n, k) in [(1, 1, 1), (3, 5, 2), (4, 1, 7)] {
            let size = Product { m, n, k };
            let (a, b, base) = (noise(1, m * k), noise(2, k * n), noise(3, m * n));
            let product: Vec<f64> = (0..m * n)
                .map(|i| (0..k).map(|j| a[i / n * k + j] * b[j * n + i % n]).sum::<f64>())
                .collect();
            let sum: Vec<f64> = product.iter().zip(&base).map(|(p, b)| p + b).collect();
            for (base, expected) in [(None, product), (Some(&base[..]), sum)] {
                assert_close("matmul", &matmul(size, &a, &b, base), &expected, 1e-14, 0.0);
                assert_close(
                    "matmul_t",
                    &matmul_t(size, &a, &transpose(&b, k), base),
                    &expected,
                    1e-14,
                    0.0,
                );
                assert_close(
                    "matmul_at",
                    &matmul_at(size, &transpose(&a, m), &b, base),
                    &expected,
                    1e-14,
                    0.0,
                );
            }
            let row = matvec_forward(&a[..k], &transpose(&b, k), None);
            assert_close(
                "matvec",
                &row,
                &matmul(Product { m: 1, ..size }, &a[..k], &b, None),
                1e-14,
                0.0,
            );
        }
    }

    #[test]
    fn a_linear_layer_s_gradients_are_the_other_two_forms() {
        let (tokens, inputs, outputs) = (4, 3, 5);
        let (x, w, d_y) =
            (noise(1, tokens * inputs), noise(2, outputs * inputs), noise(3, tokens * outputs));
        let forward = |x: &[f64], w: &[f64]| {
            matmul_t(Product { m: tokens, n: outputs, k: inputs }, x, w, None)
        };
        let d_x = matmul(Product { m: tokens, n: inputs, k: outputs }, &d_y, &w, None);
        let d_w = matmul_at(Product { m: outputs, n: inputs, k: tokens }, &d_y, &x, None);
        assert_gradient("d_x", &d_x, &x, &d_y, |x| forward(x, &w));
        assert_gradient("d_w", &d_w, &w, &d_y, |w| forward(&x, w));
    }
}
