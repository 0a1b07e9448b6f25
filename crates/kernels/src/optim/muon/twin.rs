//! Twins of Muon's kernels, and dispatches to hold the kernels to them.

use super::{RULE, parts_of};
use crate::error::Result;
use crate::kernels::Constant;
use crate::kernels::linear::twin::{Product, matmul, matmul_at, matmul_t};
use crate::kernels::optimizer::cases::update::{
    BEHIND, Problem, RUNS, UpdateTests, decided, step_of,
};
use crate::kernels::optimizer::twin::update::{Cpu, twin};
use crate::kernels::optimizer::twin::{Decision, StepOptions};
use crate::testing::{Lane, Operand};
use crate::twins::Real;
use crate::twins::dot;

pub(in crate::optim) const MUON: UpdateTests =
    UpdateTests { twin: twin!(muon), sizes: &[[40_000, 0, 0]], problems: momentum_runs };

pub(in crate::optim) const SCALE: UpdateTests =
    UpdateTests { twin: twin!(scale), sizes: &[[40_000, 7, 0]], problems: scale_runs };

pub(in crate::optim) const POLYNOMIAL: UpdateTests = UpdateTests {
    twin: twin!(polynomial),
    sizes: &[[1, 0, 0], [61, 0, 0], [768, 0, 0]],
    problems: polynomial_runs,
};

pub(in crate::optim) const UPDATE: UpdateTests =
    UpdateTests { twin: twin!(update), sizes: &[[40_000, 0, 0]], problems: update_runs };

/// Momentum of a matrix in place, and the direction with Nesterov's look ahead, as `torch.optim.Muon`; none where
/// the step does not update.
pub fn muon_forward<R: Real>(
    gradients: &[R],
    moment: &mut [R],
    momentum: R,
    decision: &Decision<R>,
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

/// A step along a direction in place, `rate` times the learning rate, with decoupled decay where `decays` says so.
pub fn muon_update_forward<R: Real>(
    weights: &mut [R],
    direction: &[R],
    rate: R,
    options: &StepOptions<R>,
    decision: &Decision<R>,
    decays: bool,
) {
    if !decision.update {
        return;
    }
    let decay = options.decay(decays);
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

fn muon<R: Real>(on: &mut Cpu<R>) -> Result<()> {
    let Some((options, decision)) = on.updates()? else { return Ok(()) };
    let count = on.spec.sizes[0];
    let ([gradient0, moment0], [first, part]) = (on.places("range")?, on.places("place")?);
    let gradients = on.read("gradients", gradient0, count)?;
    let before = on.read("moment1", moment0, count)?;
    let mut moment = before.clone();
    let momentum = options.numbers[3][0];
    let Some(direction) = muon_forward(&gradients, &mut moment, momentum, &decision) else {
        return Ok(());
    };
    let squares: Vec<R> = direction.iter().map(|&x| x * x).collect();
    on.write_state("moment1", moment0, &moment)?;
    on.write("direction", first, &direction)?;
    on.write("squares", part, &on.by_workgroups(parts_of(count), &squares))?;
    // What cancels in a direction and its squares is about as large as the moment was.
    on.terms("direction", first, &before)?;
    let squares: Vec<R> = before.iter().map(|&x| x * x).collect();
    on.terms("squares", part, &on.by_workgroups(parts_of(count), &squares))
}

fn scale<R: Real>(on: &mut Cpu<R>) -> Result<()> {
    let [count, parts, _] = on.spec.sizes;
    let squares: R = on.read("squares", 0, parts)?.into_iter().sum();
    let mut direction = on.read("direction", 0, count)?;
    muon_scale_forward(&mut direction, squares);
    on.write("direction", 0, &direction)
}

fn polynomial<R: Real>(on: &mut Cpu<R>) -> Result<()> {
    let side = on.spec.sizes[0];
    let gram = on.read("gram", 0, side * side)?;
    let mut square = on.read("square", 0, side * side)?;
    let larger = |(&a, &b): (&R, &R)| a.max(-a).max(b.max(-b));
    let terms: Vec<R> = gram.iter().zip(&square).map(larger).collect();
    muon_polynomial_forward(&gram, &mut square, side);
    on.write("square", 0, &square)?;
    on.terms("square", 0, &terms)
}

fn update<R: Real>(on: &mut Cpu<R>) -> Result<()> {
    let Some((options, decision)) = on.updates()? else { return Ok(()) };
    let ([weight0, first], count) = (on.places("range")?, on.spec.sizes[0]);
    let mut weights = on.read("weights", weight0, count)?;
    let along = on.read("direction", first, count)?;
    let (rate, decays) = (R::from_f64(on.spec.constant.0), on.range("range")?.cols != 0);
    muon_update_forward(&mut weights, &along, rate, &options, &decision, decays);
    on.write("weights", weight0, &weights)
}

fn momentum_runs(lane: &Lane) -> Vec<Problem> {
    let problem = |(count, _, update)| {
        let [gradient0, moment0, first, part] = [11, 37, 21, 3];
        let mut operands = vec![
            Operand::floats(&lane.normal(gradient0 + count + BEHIND)),
            Operand::floats(&lane.normal(moment0 + count + BEHIND)),
            Operand::poison(first + count + BEHIND),
            Operand::poison(part + parts_of(count) + 2),
        ];
        operands.extend(decided(update, &step_of(&RULE)));
        operands.push(Operand::range(gradient0, 0, moment0, 0));
        operands.push(Operand::range(first, 0, part, 0));
        Problem::new([count, 0, 0], operands)
    };
    RUNS.map(problem).into()
}

fn scale_runs(lane: &Lane) -> Vec<Problem> {
    let problem = |(count, parts, size): (usize, usize, f32)| {
        let squares: Vec<f32> = lane.normal(parts).into_iter().map(|x| size * x * x).collect();
        let direction: Vec<f32> = lane.normal(count).into_iter().map(|x| size * x).collect();
        let operands = vec![Operand::floats(&squares), Operand::floats(&direction)];
        Problem::new([count, parts, 0], operands)
    };
    let sizes = [(1, 1, 1.0f32), (1003, 7, 0.01), (70_000, 512, 1.0), (300, 2, 0.0)];
    sizes.map(problem).into()
}

fn polynomial_runs(lane: &Lane) -> Vec<Problem> {
    let problem = |side: usize| {
        let operands = [(); 2].map(|()| Operand::floats(&lane.normal(side * side)));
        Problem::new([side, 0, 0], operands.into())
    };
    [1, 7, 61, 300].map(problem).into()
}

fn update_runs(lane: &Lane) -> Vec<Problem> {
    let problem = |(count, decay_end, update)| {
        let [weight0, first] = [37, 11];
        let mut operands = vec![
            Operand::floats(&lane.normal(weight0 + count + BEHIND)),
            Operand::floats(&lane.normal(first + count + BEHIND)),
        ];
        operands.extend(decided(update, &step_of(&RULE)));
        operands.push(Operand::range(weight0, 0, first, decay_end));
        let constant = Constant(f64::from(0.7f32));
        Problem { constant, ..Problem::new([count, 0, 0], operands) }
    };
    RUNS.map(problem).into()
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
        let decision = Decision { norm: 1.0, update: false, factor: 0.0, carried: [0.0; 2] };
        let mut moment = [1.0, 2.0];
        assert!(muon_forward(&[f64::NAN; 2], &mut moment, 0.95, &decision).is_none());
        assert!(moment == [1.0, 2.0]);
    }
}
