//! Twins of Adafactor's kernels, and dispatches to hold the kernels to them.

use super::{RULE, STRETCH, parts_of};
use crate::error::Result;
use crate::kernels::Constant;
use crate::kernels::optimizer::cases::update::{BEHIND, Problem, UpdateTests, decided_at, step_of};
use crate::kernels::optimizer::twin::update::{Cpu, twin};
use crate::kernels::optimizer::twin::{Decision, StepOptions};
use crate::testing::{Lane, Operand};
use crate::twins::Real;

pub(in crate::optim) const ROWS: UpdateTests = UpdateTests {
    twin: twin!(rows),
    sizes: &[[64, 768, 0], [1003, 61, 0], [768, 1, 0]],
    problems: row_runs,
};

pub(in crate::optim) const COLUMNS: UpdateTests = UpdateTests {
    twin: twin!(columns),
    sizes: &[[500, 768, 0], [7, 61, 0]],
    problems: column_runs,
};

pub(in crate::optim) const COLUMN_MEANS: UpdateTests =
    UpdateTests { twin: twin!(column_means), sizes: &[[500, 768, 4]], problems: mean_runs };

pub(in crate::optim) const NORMS: UpdateTests = UpdateTests {
    twin: twin!(norms),
    sizes: &[[40_000, 400, 0], [768, 0, 0]],
    problems: |lane| strided_runs(lane, false),
};

pub(in crate::optim) const UPDATE: UpdateTests = UpdateTests {
    twin: twin!(update),
    sizes: &[[40_000, 400, 20], [768, 0, 1]],
    problems: |lane| strided_runs(lane, true),
};

fn squares_of<R: Real>(on: &Cpu<R>, count: usize, decision: &Decision<R>) -> Result<Vec<R>> {
    let [_, gradient0] = on.places("range")?;
    let gradients = on.read("gradients", gradient0, count)?;
    let square = |g| {
        let gradient: R = g * decision.factor;
        gradient * gradient
    };
    Ok(gradients.into_iter().map(square).collect())
}

/// A mean after a square: its share falls with the updates made.
fn averaged<R: Real>(old: R, mean: R, options: &StepOptions<R>, decision: &Decision<R>) -> R {
    let share = (options.numbers[0][0] * decision.carried[0].ln()).exp();
    old + share * (mean - old)
}

fn rows<R: Real>(on: &mut Cpu<R>) -> Result<()> {
    let Some((options, decision)) = on.updates()? else { return Ok(()) };
    let [rows, columns, _] = on.spec.sizes;
    let [first, _] = on.places("place")?;
    let squares = squares_of(on, rows * columns, &decision)?;
    let old = on.read("moment1", first, rows)?;
    let next = |(row, old): (&[R], R)| {
        let mean = row.iter().copied().sum::<R>() / R::from_usize(columns);
        averaged(old, mean, &options, &decision)
    };
    let next: Vec<R> = squares.chunks(columns).zip(old).map(next).collect();
    on.write_state("moment1", first, &next)
}

fn columns<R: Real>(on: &mut Cpu<R>) -> Result<()> {
    // There is no step among the bindings: whether it updates is in what was decided.
    let decided = on.read("optimizer", 0, 4)?;
    if decided[3] == R::ZERO {
        return Ok(());
    }
    let (norm, carried) = (R::ZERO, [R::ZERO; 2]);
    let decision = Decision { norm, update: true, factor: decided[2], carried };
    let [rows, columns, _] = on.spec.sizes;
    let [_, first] = on.places("place")?;
    let squares = squares_of(on, rows * columns, &decision)?;
    let sums: Vec<R> = squares
        .chunks(STRETCH * columns)
        .flat_map(|stretch| {
            (0..columns).map(|column| stretch.iter().skip(column).step_by(columns).copied().sum())
        })
        .collect();
    on.write("sums", first * columns, &sums)
}

fn column_means<R: Real>(on: &mut Cpu<R>) -> Result<()> {
    let Some((options, decision)) = on.updates()? else { return Ok(()) };
    let [rows, columns, stretches] = on.spec.sizes;
    let [_, first] = on.places("place")?;
    let sums = on.read("sums", 0, stretches * columns)?;
    let old = on.read("moment2", first, columns)?;
    let next = |(column, old)| {
        let total: R = sums.iter().skip(column).step_by(columns).copied().sum();
        averaged(old, total / R::from_usize(rows), &options, &decision)
    };
    let next: Vec<R> = old.into_iter().enumerate().map(next).collect();
    on.write_state("moment2", first, &next)
}

/// The second moment of each element, at least the square of epsilon.
fn seconds<R: Real>(on: &Cpu<R>, options: &StepOptions<R>) -> Result<Vec<R>> {
    let [count, columns, _] = on.spec.sizes;
    let ([row0, column0], epsilon) = (on.places("place")?, options.numbers[1][0]);
    let least = epsilon * epsilon;
    if columns == 0 {
        return Ok(on.read("moment1", row0, count)?.into_iter().map(|x| x.max(least)).collect());
    }
    let rows = on.read("moment1", row0, count / columns)?;
    let of_columns = on.read("moment2", column0, columns)?;
    let mean = of_columns.iter().copied().sum::<R>() / R::from_usize(columns);
    let mean = mean.max(epsilon);
    let second = |i: usize| (rows[i / columns] * of_columns[i % columns] / mean).max(least);
    Ok((0..count).map(second).collect())
}

fn norms<R: Real>(on: &mut Cpu<R>) -> Result<()> {
    let Some((options, decision)) = on.updates()? else { return Ok(()) };
    let count = on.spec.sizes[0];
    let [weight0, _] = on.places("range")?;
    let part = on.range("place")?.rows as usize;
    let gradients = squares_of(on, count, &decision)?;
    let seconds = seconds(on, &options)?;
    let updates: Vec<R> = gradients.into_iter().zip(seconds).map(|(g, v)| g / v).collect();
    let weights = on.read("weights", weight0, count)?;
    let weights: Vec<R> = weights.into_iter().map(|w| w * w).collect();
    let [updates, weights] =
        [updates, weights].map(|terms| on.by_workgroups(parts_of(count), &terms));
    let both: Vec<R> = updates.into_iter().zip(weights).flat_map(|(u, w)| [u, w]).collect();
    on.write("squares", 2 * part, &both)
}

fn update<R: Real>(on: &mut Cpu<R>) -> Result<()> {
    let Some((options, decision)) = on.updates()? else { return Ok(()) };
    let [count, _, parts] = on.spec.sizes;
    let [weight0, gradient0] = on.places("range")?;
    let squares = on.read("squares", 0, 2 * parts)?;
    let tensor = R::from_f64(on.spec.constant.0);
    let size = |of: usize| (squares.iter().skip(of).step_by(2).copied().sum::<R>() / tensor).sqrt();
    let [_, _, [least_scale, _], [threshold, _], ..] = options.numbers;
    let rate = options.learning_rate.min(R::ONE / decision.carried[0].sqrt());
    let rate = rate * least_scale.max(size(1)) / R::ONE.max(size(0) / threshold);
    let decay = options.decay(on.range("range")?.cols != 0);
    let seconds = seconds(on, &options)?;
    let gradients = on.read("gradients", gradient0, count)?;
    let mut weights = on.read("weights", weight0, count)?;
    for ((w, g), v) in weights.iter_mut().zip(gradients).zip(seconds) {
        *w = *w - decay * *w - rate * g * decision.factor / v.sqrt();
    }
    on.write("weights", weight0, &weights)
}

/// After 7 updates and this one.
const UPDATES: f32 = 8.0;

fn positive(lane: &Lane, count: usize) -> Operand {
    let numbers: Vec<f32> = lane.normal(count).into_iter().map(|x| x.abs() + 0.01).collect();
    Operand::floats(&numbers)
}

fn row_runs(lane: &Lane) -> Vec<Problem> {
    let problem = |(rows, columns, update): (usize, usize, bool)| {
        let [gradient0, first] = [11, 37];
        let mut operands = vec![
            Operand::floats(&lane.normal(gradient0 + rows * columns + BEHIND)),
            positive(lane, first + rows + BEHIND),
        ];
        operands.extend(decided_at([UPDATES, 0.0], update, &step_of(&RULE)));
        operands.push(Operand::range(0, 0, gradient0, 0));
        operands.push(Operand::range(first, 0, 0, 0));
        Problem::new([rows, columns, 0], operands)
    };
    [(1, 1, true), (61, 300, true), (70_000, 1, true), (7, 1003, true), (7, 64, false)]
        .map(problem)
        .into()
}

fn column_runs(lane: &Lane) -> Vec<Problem> {
    let problem = |(rows, columns, update): (usize, usize, bool)| {
        let (gradient0, stretch) = (11, 2);
        let stretches = rows.div_ceil(STRETCH);
        let [optimizer, _] = decided_at([UPDATES, 0.0], update, &step_of(&RULE));
        let operands = vec![
            Operand::floats(&lane.normal(gradient0 + rows * columns + BEHIND)),
            Operand::poison((stretch + stretches) * columns + BEHIND),
            optimizer,
            Operand::range(0, 0, gradient0, 0),
            Operand::range(0, 0, stretch, 0),
        ];
        Problem::new([rows, columns, 0], operands)
    };
    [(1, 1, true), (300, 61, true), (7, 1003, true), (129, 8, false)].map(problem).into()
}

fn mean_runs(lane: &Lane) -> Vec<Problem> {
    let problem = |(columns, stretches, update): (usize, usize, bool)| {
        let first = 37;
        let mut operands =
            vec![positive(lane, columns * stretches), positive(lane, first + columns + BEHIND)];
        operands.extend(decided_at([UPDATES, 0.0], update, &step_of(&RULE)));
        operands.push(Operand::range(0, 0, first, 0));
        Problem::new([stretches * STRETCH, columns, stretches], operands)
    };
    [(1, 1, true), (1003, 3, true), (61, 40, true), (300, 2, false)].map(problem).into()
}

/// Runs of matrices and vectors, some with an update that is clipped.
fn strided_runs(lane: &Lane, update: bool) -> Vec<Problem> {
    let problem = |(rows, columns, decay, updates, parts): (usize, usize, usize, bool, usize)| {
        let [weight0, gradient0, row0, column0, part0] = [37, 11, 64, 21, 3];
        let count = rows * columns.max(1);
        let own = if update { parts } else { part0 + parts_of(count) + 2 };
        let squares = if update { positive(lane, 2 * own) } else { Operand::poison(2 * own) };
        let mut operands = vec![
            Operand::floats(&lane.normal(weight0 + count + BEHIND)),
            Operand::floats(&lane.normal(gradient0 + count + BEHIND)),
            positive(lane, row0 + rows + BEHIND),
            squares,
        ];
        operands.extend(decided_at([UPDATES, 0.0], updates, &step_of(&RULE)));
        operands.push(Operand::range(weight0, 0, gradient0, decay * count));
        operands.push(Operand::range(row0, if update { 0 } else { part0 }, column0, 0));
        if columns > 0 {
            operands.push(positive(lane, column0 + columns + BEHIND));
        }
        let sizes = [count, columns, if update { parts } else { 0 }];
        Problem { constant: Constant(count as f64), ..Problem::new(sizes, operands) }
    };
    let runs = [
        (1, 1, 0, true, 1),
        (61, 300, 1, true, 9),
        (70_000, 1, 1, true, 35),
        (1003, 0, 0, true, 600),
        (300, 7, 1, false, 2),
    ];
    runs.map(problem).into()
}
