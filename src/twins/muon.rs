//! Twins of Muon's kernels.

use super::linear::{Product, matmul, matmul_at, matmul_t};
use super::optimizer::{Decision, OptimizerOptions};
use super::{Real, dot};

/// Momentum of a matrix in place, and the direction with Nesterov's look ahead, as `torch.optim.Muon`; none where
/// the step does not update.
pub fn muon_forward<R: Real>(
    gradients: &[R],
    moment: &mut [R],
    momentum: R,
    decision: Decision<R>,
) -> Option<Vec<R>> {
    if !decision.update {
        return None;
    }
    let share = R::ONE - momentum;
    let ahead = |(m, &g): (&mut R, &R)| {
        let gradient = g * decision.factor;
        *m = *m + share * (gradient - *m);
        *m + share * (gradient - *m)
    };
    Some(moment.iter_mut().zip(gradients).map(ahead).collect())
}

/// A matrix divided by its Frobenius norm, given the sum of its squares.
pub fn muon_scale_forward<R: Real>(direction: &mut [R], squares: R) {
    let norm = squares.sqrt();
    let least = R::from_f64(1e-7);
    let norm = if norm > least { norm } else { least };
    direction.iter_mut().for_each(|x| *x = *x / norm);
}

/// Replaces G², the square of a symmetric matrix G, by `a + b·G + c·G²`.
pub fn muon_polynomial_forward<R: Real>(gram: &[R], square: &mut [R], side: usize) {
    let [a, b, c] = [3.4445, -4.775, 2.0315].map(R::from_f64);
    for (i, (square, &gram)) in square.iter_mut().zip(gram).enumerate() {
        let constant = if i / side == i % side { a } else { R::ZERO };
        *square = constant + b * gram + c * *square;
    }
}

/// A step along a direction in place, `rate` times the learning rate, with decoupled decay where `decay` says so.
pub fn muon_update_forward<R: Real>(
    weights: &mut [R],
    direction: &[R],
    rate: R,
    options: &OptimizerOptions<R>,
    decision: Decision<R>,
    decay: bool,
) {
    if !decision.update {
        return;
    }
    let decay = if decay { options.learning_rate * options.weight_decay } else { R::ZERO };
    for (w, &x) in weights.iter_mut().zip(direction) {
        *w = *w - decay * *w - options.learning_rate * rate * x;
    }
}

/// Five Newton-Schulz steps of a matrix `[rows, columns]` divided by its norm.
pub fn muon_orthogonal<R: Real>(direction: &[R], [rows, columns]: [usize; 2]) -> Vec<R> {
    let mut x = direction.to_vec();
    let squares = dot(&x, &x);
    muon_scale_forward(&mut x, squares);
    let side = rows.min(columns);
    for _ in 0..5 {
        let gram = if rows > columns {
            matmul_at(Product { m: side, n: side, k: rows }, &x, &x, None)
        } else {
            matmul_t(Product { m: side, n: side, k: columns }, &x, &x, None)
        };
        let mut square = matmul_t(Product { m: side, n: side, k: side }, &gram, &gram, None);
        muon_polynomial_forward(&gram, &mut square, side);
        x = if rows > columns {
            matmul(Product { m: rows, n: side, k: side }, &x, &square, None)
        } else {
            matmul(Product { m: rows, n: columns, k: side }, &square, &x, None)
        };
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(rows: usize, columns: usize) -> Vec<f64> {
        (0..rows * columns).map(|i| ((i * i * 7 + 3 * i) % 23) as f64 / 11.0 - 1.0).collect()
    }

    /// Singular values end between 0.7 and 1.2, by the coefficients' design.
    #[test]
    fn rows_or_columns_become_nearly_orthogonal() {
        for [rows, columns] in [[5, 12], [12, 5], [1, 7], [6, 6]] {
            let x = muon_orthogonal(&matrix(rows, columns), [rows, columns]);
            let side = rows.min(columns);
            let gram = if rows > columns {
                matmul_at(Product { m: side, n: side, k: rows }, &x, &x, None)
            } else {
                matmul_t(Product { m: side, n: side, k: columns }, &x, &x, None)
            };
            let trace: f64 = (0..side).map(|i| gram[i * side + i]).sum();
            let mean = trace / side as f64;
            assert!((0.4..1.5).contains(&mean), "{rows} x {columns}: {mean}");
        }
    }

    /// A matrix and its transpose have transposed results.
    #[test]
    fn a_transposed_matrix_gives_the_transposed_result() {
        let (rows, columns) = (4, 9);
        let transpose = |x: &[f64], rows: usize, columns: usize| -> Vec<f64> {
            (0..rows * columns).map(|i| x[i % rows * columns + i / rows]).collect()
        };
        let x = matrix(rows, columns);
        let wide = muon_orthogonal(&x, [rows, columns]);
        let tall = muon_orthogonal(&transpose(&x, rows, columns), [columns, rows]);
        let error =
            transpose(&wide, rows, columns).into_iter().zip(&tall).map(|(a, b)| (a - b).abs());
        assert!(error.fold(0.0, f64::max) < 1e-12);
    }

    #[test]
    fn nothing_moves_without_gradients_or_an_update() {
        assert!(muon_orthogonal(&[0.0; 6], [2, 3]).iter().all(|&x: &f64| x == 0.0));
        let decision = Decision { norm: 1.0, update: false, factor: 0.0 };
        let mut moment = [1.0, 2.0];
        assert!(muon_forward(&[f64::NAN; 2], &mut moment, 0.95, decision).is_none());
        assert!(moment == [1.0, 2.0]);
    }
}
