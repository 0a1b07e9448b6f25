//! Twins of family 02: root mean square normalisation (Zhang and Sennrich, arXiv:1910.07467) and layer
//! normalisation (Ba, Kiros and Hinton, arXiv:1607.06450).

use super::{
    ColumnSum, HeadNormBackward, HeadNormForward, LayerNormBackward, LayerNormForward,
    RmsNormBackward, RmsNormForward,
};
use crate::error::Result;
use crate::format::WriteMode;
use crate::kernels::attention::twin as attention;
use crate::kernels::attention::twin::causal::CausalAttention;
use crate::kernels::shape::{Constant, PartialSums};
use crate::twins::{Operands, Real, Twin, add_assign, dot};

/// 1 / sqrt(mean(x²) + epsilon)
fn inverse_rms<R: Real>(x: &[R], epsilon: f64) -> R {
    R::ONE / (dot(x, x) / R::from_usize(x.len()) + R::from_f64(epsilon)).sqrt()
}

/// What a row is multiplied by: the weight, or 1 + the weight where it is stored as its distance from 1.
pub fn norm_factors<R: Real>(weight: &[R], shifted: bool) -> Vec<R> {
    let offset = if shifted { R::ONE } else { R::ZERO };
    weight.iter().map(|&w| offset + w).collect()
}

/// y[t, :] = x[t, :] / sqrt(mean(x[t, :]²) + epsilon) · weight
pub fn rms_norm_forward<R: Real>(x: &[R], weight: &[R], epsilon: f64) -> Vec<R> {
    x.chunks_exact(weight.len())
        .flat_map(|row| {
            let scale = inverse_rms(row, epsilon);
            row.iter().zip(weight).map(move |(&x, &w)| x * scale * w)
        })
        .collect()
}

/// (d_x, d_weight): with r = 1 / rms of a row of n elements,
/// d_x = r · weight · d_y − x · r³ / n · Σ (weight · d_y · x),
/// d_weight = Σ over rows d_y · x · r.
pub fn rms_norm_backward<R: Real>(
    x: &[R],
    weight: &[R],
    d_y: &[R],
    epsilon: f64,
) -> (Vec<R>, Vec<R>) {
    let n = weight.len();
    let mut d_weight = vec![R::ZERO; n];
    let mut d_x = Vec::with_capacity(x.len());
    for (row, d_row) in x.chunks_exact(n).zip(d_y.chunks_exact(n)) {
        let r = inverse_rms(row, epsilon);
        let projection: R = (0..n).map(|i| weight[i] * d_row[i] * row[i]).sum();
        let pull = projection * r * r * r / R::from_usize(n);
        for i in 0..n {
            d_x.push(r * weight[i] * d_row[i] - row[i] * pull);
            d_weight[i] += d_row[i] * row[i] * r;
        }
    }
    (d_x, d_weight)
}

/// A row without its mean, and 1 / sqrt(its mean square + epsilon).
fn centred<R: Real>(row: &[R], epsilon: f64) -> (Vec<R>, R) {
    let mean = row.iter().copied().sum::<R>() / R::from_usize(row.len());
    let centred: Vec<R> = row.iter().map(|&x| x - mean).collect();
    let scale = inverse_rms(&centred, epsilon);
    (centred, scale)
}

/// y[t, :] = (x[t, :] − mean) / sqrt(variance + epsilon) · weight[0] + weight[1], the weight `[2, hidden]`
pub fn layer_norm_forward<R: Real>(x: &[R], weight: &[R], epsilon: f64) -> Vec<R> {
    let (factors, shifts) = weight.split_at(weight.len() / 2);
    let row = |row: &[R]| {
        let (centred, scale) = centred(row, epsilon);
        let both = factors.iter().zip(shifts);
        centred
            .into_iter()
            .zip(both)
            .map(move |(x, (&w, &b))| x * scale * w + b)
            .collect::<Vec<R>>()
    };
    x.chunks_exact(factors.len()).flat_map(row).collect()
}

/// (d_x, d_weight): with n = (x − mean) · r of a row and g = weight[0] · d_y,
/// d_x = r · (g − mean(g) − n · mean(g · n)), d_weight = Σ over rows d_y · n, then d_y.
pub fn layer_norm_backward<R: Real>(
    x: &[R],
    weight: &[R],
    d_y: &[R],
    epsilon: f64,
) -> (Vec<R>, Vec<R>) {
    let n = weight.len() / 2;
    let (size, factors) = (R::from_usize(n), &weight[..n]);
    let mut d_weight = vec![R::ZERO; 2 * n];
    let mut d_x = Vec::with_capacity(x.len());
    for (row, d_row) in x.chunks_exact(n).zip(d_y.chunks_exact(n)) {
        let (centred, r) = centred(row, epsilon);
        let slopes: Vec<R> = factors.iter().zip(d_row).map(|(&w, &d)| w * d).collect();
        let level = slopes.iter().copied().sum::<R>() / size;
        let pull = dot(&slopes, &centred) * r * r / size;
        for i in 0..n {
            d_x.push(r * (slopes[i] - level - centred[i] * pull));
            d_weight[i] += d_row[i] * centred[i] * r;
            d_weight[n + i] += d_row[i];
        }
    }
    (d_x, d_weight)
}

/// Rows of `qkv` with each query and key head normed by its row of `weight`, `[2, head_dim]`: queries'
/// first. Values stay.
pub fn head_norm_forward<R: Real>(
    shape: CausalAttention,
    qkv: &[R],
    weight: &[R],
    epsilon: f64,
) -> Vec<R> {
    let mut output = qkv.to_vec();
    for row in output.chunks_exact_mut(shape.qkv_width()) {
        for (weight, head) in normed_heads(shape, weight, row) {
            head.copy_from_slice(&rms_norm_forward(head, weight, epsilon));
        }
    }
    output
}

/// (d_qkv, d_weight) of [`head_norm_forward`].
pub fn head_norm_backward<R: Real>(
    shape: CausalAttention,
    qkv: &[R],
    weight: &[R],
    d_output: &[R],
    epsilon: f64,
) -> (Vec<R>, Vec<R>) {
    let (width, head_dim) = (shape.qkv_width(), shape.head_dim);
    let mut d_qkv = d_output.to_vec();
    let mut d_weight = vec![R::ZERO; weight.len()];
    for (row, d_row) in qkv.chunks_exact(width).zip(d_qkv.chunks_exact_mut(width)) {
        for head in 0..shape.n_heads + shape.n_kv_heads {
            let at = head * head_dim..(head + 1) * head_dim;
            let own = if head < shape.n_heads { 0..head_dim } else { head_dim..2 * head_dim };
            let (d_x, part) = rms_norm_backward(
                &row[at.clone()],
                &weight[own.clone()],
                &d_row[at.clone()],
                epsilon,
            );
            d_row[at].copy_from_slice(&d_x);
            add_assign(&mut d_weight[own], &part);
        }
    }
    (d_qkv, d_weight)
}

/// The query and key heads of a row, each with its norm's weight.
fn normed_heads<'a, R: Real>(
    shape: CausalAttention,
    weight: &'a [R],
    row: &'a mut [R],
) -> impl Iterator<Item = (&'a [R], &'a mut [R])> {
    let (query, key) = weight.split_at(shape.head_dim);
    let heads = row.chunks_exact_mut(shape.head_dim).take(shape.n_heads + shape.n_kv_heads);
    heads.enumerate().map(move |(head, x)| (if head < shape.n_heads { query } else { key }, x))
}

impl Twin for RmsNormForward {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Self { hidden, terms, form } = *self;
        let all = on.tokens()? * hidden;
        let weight = norm_factors(on.first("weight", hidden)?, terms.shifted);
        let mut x = on.sum_of("x", all, form.summed)?;
        if form.summed != PartialSums::WHOLE {
            add_assign(&mut x, on.first("before", all)?);
            on.write("stream", 0, &x)?;
        }
        let mut y = rms_norm_forward(&x, &weight, terms.epsilon.0);
        if form.residual {
            add_assign(&mut y, on.first("residual", all)?);
        }
        on.write_as("y", &y, form.half)
    }
}

impl Twin for RmsNormBackward {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Self { hidden, terms, mode, rows, sums } = *self;
        let weight = norm_factors(on.first("weight", hidden)?, terms.shifted);
        let gradient = |x: &[f32], d_y: &[f32]| rms_norm_backward(x, &weight, d_y, terms.epsilon.0);
        normed_backward(on, [hidden, rows], (mode, sums), &gradient)
    }
}

impl Twin for LayerNormForward {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Self { hidden, epsilon: Constant(epsilon), residual } = *self;
        let elements = on.tokens()? * hidden;
        let x = on.first("x", elements)?;
        let mut y = layer_norm_forward(x, on.first("weight", 2 * hidden)?, epsilon);
        if residual {
            add_assign(&mut y, on.first("residual", elements)?);
        }
        on.write("y", 0, &y)
    }
}

impl Twin for LayerNormBackward {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Self { hidden, epsilon: Constant(epsilon), mode, rows } = *self;
        let weight = on.first("weight", 2 * hidden)?.to_vec();
        let gradient = |x: &[f32], d_y: &[f32]| layer_norm_backward(x, &weight, d_y, epsilon);
        normed_backward(on, [hidden, rows], (mode, PartialSums::WHOLE), &gradient)
    }
}

/// d_x and a weight's gradient, of x and d_y.
type Gradient<'a> = dyn Fn(&[f32], &[f32]) -> (Vec<f32>, Vec<f32>) + 'a;

/// Blocks of `rows` rows by `gradient`, which gives d_x and a partial sum of the weight's gradient.
fn normed_backward(
    on: &mut Operands,
    [hidden, rows]: [usize; 2],
    (mode, sums): (WriteMode, PartialSums),
    gradient: &Gradient<'_>,
) -> Result<()> {
    let (all, adds, block) = (on.tokens()? * hidden, on.adds(mode)?, rows * hidden);
    let x = on.first("x", all)?.to_vec();
    let d_y = on.sum_of("d_y", all, sums)?;
    for (index, (x, d_y)) in x.chunks(block).zip(d_y.chunks(block)).enumerate() {
        let (d_x, d_weight) = gradient(x, d_y);
        on.write_by("d_x", index * block, &d_x, adds)?;
        on.write("partial_sums", index * d_weight.len(), &d_weight)?;
    }
    Ok(())
}

impl Twin for HeadNormForward {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Self { shape, terms } = *self;
        let tokens = on.tokens()?;
        let x = on.first("x", tokens * shape.stride())?;
        let weight = norm_factors(on.first("weight", 2 * shape.head_dim)?, terms.shifted);
        let of = attention::twin(&shape, tokens);
        let y = head_norm_forward(of, x, &weight, terms.epsilon.0);
        on.write("y", 0, &y)
    }
}

impl Twin for HeadNormBackward {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Self { shape, terms, rows } = *self;
        let (tokens, both) = (on.tokens()?, 2 * shape.head_dim);
        let all = tokens * shape.stride();
        let (x, d) = (on.first("x", all)?.to_vec(), on.first("d", all)?.to_vec());
        let weight = norm_factors(on.first("weight", both)?, terms.shifted);
        let block = rows * shape.stride();
        for (index, (x, d)) in x.chunks(block).zip(d.chunks(block)).enumerate() {
            let of = attention::twin(&shape, x.len() / shape.stride());
            let (d_x, d_weight) = head_norm_backward(of, x, &weight, d, terms.epsilon.0);
            on.write("d", index * block, &d_x)?;
            on.write("partial_sums", index * both, &d_weight)?;
        }
        Ok(())
    }
}

impl Twin for ColumnSum {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Self { hidden, rows, weights } = *self;
        let (last, elements) = (weights.count - 1, on.tokens()?.div_ceil(rows) * hidden);
        let adds = on.adds(WriteMode::AddAfterFirst)?;
        for weight in 0..weights.count {
            let partial = on.first("partial_sums", weight * weights.partials + elements)?;
            let mut total = vec![0.0; hidden];
            let own = partial[weight * weights.partials..].chunks(hidden);
            own.for_each(|part| add_assign(&mut total, part));
            on.write_by("output", (last - weight) * weights.outputs, &total, adds)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::twins::check::{assert_close, assert_gradient, noise};

    #[test]
    fn rows_get_unit_mean_square() {
        let y = rms_norm_forward(&[3.0, 4.0, 0.0, 0.0], &[1.0, 2.0], 0.0);
        let rms = 12.5f64.sqrt();
        assert_close("y", &y[..2], &[3.0 / rms, 8.0 / rms], 1e-15, 0.0);
        // A row of zeros stays zero with any epsilon above 0.
        assert_eq!(rms_norm_forward(&[0.0f32; 4], &[1.0; 4], 1e-6), [0.0; 4]);
    }

    #[test]
    fn gradients_match_finite_differences() {
        for (rows, n) in [(1, 1), (3, 7), (2, 16)] {
            let (x, weight, d_y) = (noise(1, rows * n), noise(2, n), noise(3, rows * n));
            let (d_x, d_weight) = rms_norm_backward(&x, &weight, &d_y, 1e-2);
            assert_gradient("d_x", &d_x, &x, &d_y, |x| rms_norm_forward(x, &weight, 1e-2));
            assert_gradient("d_weight", &d_weight, &weight, &d_y, |w| {
                rms_norm_forward(&x, w, 1e-2)
            });
        }
    }

    #[test]
    fn rows_get_mean_and_deviation() {
        let weight = [1.0, 2.0, 3.0, 0.5, 0.0, -1.0];
        let y = layer_norm_forward(&[1.0, 2.0, 6.0, 7.0, 7.0, 7.0], &weight, 0.0000001);
        let r = 1.0 / (14.0f64 / 3.0 + 1e-7).sqrt();
        assert_close("y", &y[..3], &[0.5 - 2.0 * r, -2.0 * r, 9.0 * r - 1.0], 1e-15, 0.0);
        // In a row without deviation what is added remains.
        assert_eq!(y[3..], weight[3..]);
    }

    #[test]
    fn layer_norm_gradients_match_finite_differences() {
        for (rows, n) in [(1, 2), (3, 7), (2, 16)] {
            let (x, weight, d_y) = (noise(1, rows * n), noise(2, 2 * n), noise(3, rows * n));
            let (d_x, d_weight) = layer_norm_backward(&x, &weight, &d_y, 1e-2);
            assert_gradient("d_x", &d_x, &x, &d_y, |x| layer_norm_forward(x, &weight, 1e-2));
            assert_gradient("d_weight", &d_weight, &weight, &d_y, |w| {
                layer_norm_forward(&x, w, 1e-2)
            });
        }
    }

    #[test]
    fn heads_are_normed_by_themselves() {
        let shape = CausalAttention::new(2, 1, 3, 4);
        let width = shape.qkv_width();
        let (x, d_y, weight) = (noise(1, 4 * width), noise(2, 4 * width), noise(3, 6));
        let y = head_norm_forward(shape, &x, &weight, 1e-2);
        // The second query head of the last row, its key, its value.
        let row = 3 * width;
        assert_eq!(y[row + 3..row + 6], rms_norm_forward(&x[row + 3..row + 6], &weight[..3], 1e-2));
        assert_eq!(y[row + 6..row + 9], rms_norm_forward(&x[row + 6..row + 9], &weight[3..], 1e-2));
        assert_eq!(y[row + 9..], x[row + 9..]);
        let (d_x, d_weight) = head_norm_backward(shape, &x, &weight, &d_y, 1e-2);
        assert_gradient("d_x", &d_x, &x, &d_y, |x| head_norm_forward(shape, x, &weight, 1e-2));
        assert_gradient("d_weight", &d_weight, &weight, &d_y, |w| {
            head_norm_forward(shape, &x, w, 1e-2)
        });
    }
}
