//! Twins of family 07: cross-entropy over the vocabulary, and the soft cap of its logits.

use super::{CrossEntropy, LogitRow, LossSumForward, ObjectiveCrossEntropy, SoftCap};
use crate::data::IGNORE_INDEX;
use crate::error::Result;
use crate::format::WriteMode;
use crate::kernels::shape::Constant;
use crate::twins::{Operands, Real, Twin};

/// (maximum, Σ exp(x − maximum))
fn softmax_terms<R: Real>(logits: &[R]) -> (R, R) {
    let largest = logits.iter().copied().fold(logits[0], R::max);
    (largest, logits.iter().map(|&x| (x - largest).exp()).sum())
}

/// log Σ exp of a row.
pub fn log_sum_exp<R: Real>(logits: &[R]) -> R {
    let (largest, sum) = softmax_terms(logits);
    largest + sum.ln()
}

/// losses[t] = logsumexp(logits[t, :]) − logits[t, targets[t]] in nats, 0 for an ignored target.
pub fn cross_entropy_forward<R: Real>(logits: &[R], targets: &[u32], vocab_size: usize) -> Vec<R> {
    assert_eq!(logits.len(), targets.len() * vocab_size);
    logits
        .chunks_exact(vocab_size)
        .zip(targets)
        .map(|(row, &target)| match target {
            IGNORE_INDEX => R::ZERO,
            _ => log_sum_exp(row) - row[target as usize],
        })
        .collect()
}

/// Replaces the logits by dLogits = (softmax(logits) − onehot(target)) · scale, rows of ignored
/// targets by 0, and returns the losses.
pub fn cross_entropy_backward<R: Real>(
    logits: &mut [R],
    targets: &[u32],
    vocab_size: usize,
    scale: R,
) -> Vec<R> {
    let losses = cross_entropy_forward(logits, targets, vocab_size);
    for (row, &target) in logits.chunks_exact_mut(vocab_size).zip(targets) {
        if target == IGNORE_INDEX {
            row.fill(R::ZERO);
            continue;
        }
        let (largest, sum) = softmax_terms(row);
        for (i, x) in row.iter_mut().enumerate() {
            let onehot = if i == target as usize { R::ONE } else { R::ZERO };
            *x = scale * ((*x - largest).exp() / sum - onehot);
        }
    }
    losses
}

/// Replaces the logits by the gradient, times `scale`, of cross-entropy with label smoothing, as
/// `torch.nn.functional.cross_entropy` has it, plus `z_loss` · logsumexp², and returns these losses. Rows of
/// ignored targets have neither.
pub fn smoothed_cross_entropy_backward<R: Real>(
    logits: &mut [R],
    targets: &[u32],
    vocab_size: usize,
    scale: R,
    [smoothing, z_loss]: [R; 2],
) -> Vec<R> {
    let (kept, spread) = (R::ONE - smoothing, smoothing / R::from_usize(vocab_size));
    let rows = logits.chunks_exact_mut(vocab_size).zip(targets);
    rows.map(|(row, &target)| {
        if target == IGNORE_INDEX {
            row.fill(R::ZERO);
            return R::ZERO;
        }
        let z = log_sum_exp(row);
        let all: R = row.iter().map(|&x| z - x).sum();
        let loss = kept * (z - row[target as usize]) + spread * all + z_loss * z * z;
        let (largest, sum) = softmax_terms(row);
        for (i, x) in row.iter_mut().enumerate() {
            let onehot = if i == target as usize { kept } else { R::ZERO };
            let probability = (*x - largest).exp() / sum;
            let by_z = probability + (z_loss + z_loss) * z * probability;
            *x = scale * (by_z - onehot - spread);
        }
        loss
    })
    .collect()
}

/// Squashes logits into ± `cap`, if there is one: cap · tanh(x / cap).
pub fn soft_cap_forward<R: Real>(logits: &mut [R], cap: Option<f64>) {
    if let Some(cap) = cap.map(R::from_f64) {
        logits.iter_mut().for_each(|x| *x = cap * (*x / cap).tanh());
    }
}

/// [`smoothed_cross_entropy_backward`] of the squashed logits, if there is a cap. The gradient is with respect to
/// the logits before the cap.
pub fn objective_cross_entropy_backward<R: Real>(
    logits: &mut [R],
    targets: &[u32],
    vocab_size: usize,
    scale: R,
    objective: [R; 2],
    cap: Option<f64>,
) -> Vec<R> {
    soft_cap_forward(logits, cap);
    let capped = logits.to_vec();
    let losses = smoothed_cross_entropy_backward(logits, targets, vocab_size, scale, objective);
    if let Some(cap) = cap.map(R::from_f64) {
        let rows = logits.chunks_exact_mut(vocab_size).zip(capped.chunks_exact(vocab_size));
        // The gradient of a row that does not count is 0, whatever its logits are.
        for ((slopes, row), _) in rows.zip(targets).filter(|(_, t)| **t != IGNORE_INDEX) {
            for (slope, &y) in slopes.iter_mut().zip(row) {
                *slope *= R::ONE - (y / cap) * (y / cap);
            }
        }
    }
    losses
}

/// (Σ losses, number of targets that count)
pub fn loss_sum_forward<R: Real>(losses: &[R], targets: &[u32]) -> (R, R) {
    let counted = targets.iter().filter(|&&target| target != IGNORE_INDEX).count();
    (losses.iter().copied().sum(), R::from_usize(counted))
}

/// Rows of logits without their padding.
fn logits(on: &Operands, row: LogitRow, rows: usize) -> Result<Vec<f32>> {
    let padded = on.first("logits", rows * row.stride)?.chunks_exact(row.stride);
    Ok(padded.flat_map(|row_of| &row_of[..row.vocabulary]).copied().collect())
}

/// Gradients in the place of logits, 0 in the padding.
fn write_gradients(on: &mut Operands, row: LogitRow, gradients: &[f32]) -> Result<()> {
    let mut padded = vec![0.0; gradients.len() / row.vocabulary * row.stride];
    for (to, from) in padded.chunks_mut(row.stride).zip(gradients.chunks(row.vocabulary)) {
        to[..row.vocabulary].copy_from_slice(from);
    }
    on.write("logits", 0, &padded)
}

impl Twin for CrossEntropy {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Self { row, gradient } = *self;
        let (step, range) = (on.step()?, on.range()?);
        let (rows, vocabulary) = (range.rows_of(step.tokens as usize), row.vocabulary);
        let first = range.row0 as usize;
        let targets = on.u32("targets")?[first..first + rows].to_vec();
        let mut logits = logits(on, row, rows)?;
        let losses = if gradient {
            let losses = cross_entropy_backward(&mut logits, &targets, vocabulary, step.loss_scale);
            write_gradients(on, row, &logits)?;
            losses
        } else {
            cross_entropy_forward(&logits, &targets, vocabulary)
        };
        on.write("losses", first, &losses)
    }
}

impl Twin for ObjectiveCrossEntropy {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Self { row, gradient, objective, cap } = *self;
        let cap = cap.map(|cap| cap.0);
        let (step, range) = (on.step()?, on.range()?);
        let (rows, vocabulary) = (range.rows_of(step.tokens as usize), row.vocabulary);
        let first = range.row0 as usize;
        let targets = on.u32("targets")?[first..first + rows].to_vec();
        let mut logits = logits(on, row, rows)?;
        let more = [objective.label_smoothing, objective.z_loss].map(|constant| constant.0 as f32);
        let (scale, own) = (step.loss_scale, &mut logits);
        let losses = objective_cross_entropy_backward(own, &targets, vocabulary, scale, more, cap);
        if gradient {
            write_gradients(on, row, &logits)?;
        }
        on.write("losses", first, &losses)
    }
}

impl Twin for SoftCap {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Self { columns, cap: Constant(cap) } = *self;
        let mut logits = on.first("logits", on.tokens()? * columns)?.to_vec();
        soft_cap_forward(&mut logits, Some(cap));
        on.write("logits", 0, &logits)
    }
}

impl Twin for LossSumForward {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let tokens = on.tokens()?;
        let losses = on.first("losses", tokens)?;
        let (sum, counted) = loss_sum_forward(losses, &on.u32("targets")?[..tokens]);
        let adds = on.adds(WriteMode::AddAfterFirst)?;
        on.write("metrics", 0, &[sum, counted])?;
        on.write_by("metrics", 2, &[sum, counted], adds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::twins::check::{assert_close, assert_gradient, noise};

    #[test]
    fn known_losses() {
        let logits = [0.0, 0.0, 0.0, 0.0, 2.0, 5.0, 1.0, 4.0];
        let losses = cross_entropy_forward(&logits, &[2, 0], 4);
        // ln 4, and −ln 0.0347 of the softmax of [2, 5, 1, 4].
        let sum: f64 = [-3.0, 0.0, -4.0, -1.0].map(f64::exp).iter().sum();
        assert_close("loss", &losses, &[4.0f64.ln(), 3.0 + sum.ln()], 1e-14, 0.0);
        assert_close("probability", &[(-losses[1]).exp()], &[0.0347], 5e-5, 0.0);
        assert_eq!(loss_sum_forward(&[1.5, 0.0, 2.0], &[3, IGNORE_INDEX, 1]), (3.5, 2.0));
    }

    #[test]
    fn large_logits_do_not_overflow() {
        let mut logits = [1e4f32, -1e4, 88.0, 1e4];
        let losses = cross_entropy_backward(&mut logits, &[0], 4, 1.0);
        assert_close("loss", &losses, &[2.0f64.ln()], 1e-3, 0.0);
        assert_close("gradient", &logits, &[-0.5, 0.0, 0.0, 0.5], 1e-6, 0.0);
    }

    #[test]
    fn ignored_rows_have_neither_loss_nor_gradient() {
        let mut logits = [1.0, f64::NAN, 2.0, 3.0];
        let losses = cross_entropy_backward(&mut logits, &[IGNORE_INDEX, 1], 2, 0.5);
        assert_eq!((losses[0], &logits[..2]), (0.0, &[0.0, 0.0][..]));
    }

    #[test]
    fn smoothed_gradient_matches_finite_differences() {
        let targets = [4, IGNORE_INDEX, 0, 6];
        let logits = noise(2, 4 * 7);
        let plain = cross_entropy_forward(&logits, &targets, 7);
        for more in [[0.1, 0.0], [0.0, 0.01], [0.3, 0.02]] {
            let of = |x: &[f64]| {
                smoothed_cross_entropy_backward(&mut x.to_vec(), &targets, 7, 1.0, more)
            };
            let mut gradient = logits.clone();
            smoothed_cross_entropy_backward(&mut gradient, &targets, 7, 0.25, more);
            assert_gradient("d_logits", &gradient, &logits, &[0.25; 4], of);
            // By the definition: targets' distribution, not its parts.
            for (t, &target) in targets.iter().enumerate().filter(|(_, t)| **t != IGNORE_INDEX) {
                let row = &logits[t * 7..][..7];
                let z = log_sum_exp(row);
                let share =
                    |i| if i == target as usize { 1.0 - more[0] } else { 0.0 } + more[0] / 7.0;
                let smooth: f64 = (0..7).map(|i| share(i) * (z - row[i])).sum();
                assert_close("loss", &[of(&logits)[t]], &[smooth + more[1] * z * z], 1e-14, 0.0);
            }
        }
        let mut gradient = logits.clone();
        let none = smoothed_cross_entropy_backward(&mut gradient, &targets, 7, 1.0, [0.0; 2]);
        assert_close("without either", &none, &plain, 1e-14, 0.0);
    }

    #[test]
    fn gradient_matches_finite_differences() {
        let targets = [4, IGNORE_INDEX, 0, 6];
        let logits = noise(1, 4 * 7);
        let mut gradient = logits.clone();
        cross_entropy_backward(&mut gradient, &targets, 7, 0.25);
        assert_gradient("d_logits", &gradient, &logits, &[0.25; 4], |x| {
            cross_entropy_forward(x, &targets, 7)
        });
        for cap in [0.5, 3.0] {
            let capped = |x: &[f64]| {
                let mut x = x.to_vec();
                soft_cap_forward(&mut x, Some(cap));
                x
            };
            for more in [[0.0; 2], [0.3, 0.02]] {
                let mut gradient = logits.clone();
                let cap = Some(cap);
                objective_cross_entropy_backward(&mut gradient, &targets, 7, 0.25, more, cap);
                assert_gradient("d_logits", &gradient, &logits, &[0.25; 4], |x| {
                    smoothed_cross_entropy_backward(&mut capped(x), &targets, 7, 1.0, more)
                });
            }
            assert!(capped(&logits).iter().all(|x| x.abs() < cap));
        }
        // Each row of the gradient sums to zero.
        assert!(gradient.chunks_exact(7).all(|row| row.iter().sum::<f64>().abs() < 1e-15));
    }
}
