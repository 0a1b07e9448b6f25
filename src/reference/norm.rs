//! Twins of family 02: root mean square normalisation (Zhang and Sennrich, arXiv:1910.07467).

use super::{Real, dot};

/// 1 / sqrt(mean(x²) + epsilon)
fn inverse_rms<R: Real>(x: &[R], epsilon: f64) -> R {
    R::ONE / (dot(x, x) / R::from_usize(x.len()) + R::from_f64(epsilon)).sqrt()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::check::{assert_close, assert_gradient, noise};

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
}
