//! Twins of family 03: matrix products, row-major. `base` is what the product is added to: a
//! residual, or the gradient of earlier micro-steps.

use super::{Real, add_assign, dot};

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

/// x times a factor, in place.
pub fn scale_forward<R: Real>(x: &mut [R], factor: R) {
    x.iter_mut().for_each(|x| *x *= factor);
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
