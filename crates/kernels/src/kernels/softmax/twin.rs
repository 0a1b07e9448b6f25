//! Twin of the softmax over the last axis.

use super::Softmax;
use crate::twins::{Real, Twin};

/// exp(x − largest) / Σ exp(x − largest), row by row; a row of −∞ alone gives zeros.
pub fn softmax_forward<R: Real>(x: &[R], columns: usize) -> Vec<R> {
    let lowest = R::from_f64(f64::from(f32::MIN));
    x.chunks_exact(columns)
        .flat_map(|row| {
            let largest = row.iter().fold(lowest, |most, &x| most.max(x));
            let terms: Vec<R> = row.iter().map(|&x| (x - largest).exp()).collect();
            let sum: R = terms.iter().copied().sum();
            terms.into_iter().map(move |term| if sum > R::ZERO { term / sum } else { R::ZERO })
        })
        .collect()
}

impl Twin for Softmax {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::twins::check::{assert_close, noise};
    use crate::twins::{NEGATIVE_HUGE, cast};

    #[test]
    fn rows_are_probabilities_in_the_ratio_of_exponentials() {
        let x = noise::<f64>(1, 3 * 7);
        let y = softmax_forward(&x, 7);
        for (x, y) in x.chunks_exact(7).zip(y.chunks_exact(7)) {
            assert_close("sum", &[y.iter().sum::<f64>()], &[1.0], 1e-15, 0.0);
            assert_close("ratio", &[y[3] / y[5]], &[(x[3] - x[5]).exp()], 0.0, 1e-14);
        }
        assert_close("f32", &softmax_forward::<f32>(&cast(&x), 7), &y, 1e-7, 0.0);
    }

    #[test]
    fn rows_without_a_number_above_the_mask() {
        assert_eq!(softmax_forward(&[NEGATIVE_HUGE; 4], 4), [0.25; 4]);
        assert_eq!(softmax_forward(&[f64::NEG_INFINITY; 2], 2), [0.0; 2]);
        assert_eq!(softmax_forward(&[1e4, -1e4, NEGATIVE_HUGE], 3), [1.0, 0.0, 0.0]);
    }
}
