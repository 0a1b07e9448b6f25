//! Twins of family 07: cross-entropy over the vocabulary, and the soft cap of its logits.

use super::{
    CrossEntropy, LogitRow, LossSumForward, ObjectiveCrossEntropy, SoftCap, Steering,
    SteeringNumbers,
};
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

/// What a step says of its rows besides targets.
#[derive(Clone, Debug)]
pub struct Steered<R> {
    pub temperature: R,
    /// The weight of each row. Empty: all 1.
    pub weights: Vec<R>,
    pub soft: Option<Softened<R>>,
}

/// Probabilities of a teacher.
#[derive(Clone, Debug)]
pub struct Softened<R> {
    /// For each row the classes of one token each, and the probability of the rest.
    pub rows: Vec<(Vec<(usize, R)>, R)>,
    pub temperature: R,
    pub share: R,
    pub reverse: bool,
    /// Whether the rest is a class.
    pub rest: bool,
}

/// The divergence of a row of logits that are divided by the soft temperature, and its gradient by them: by the
/// definition, class by class.
fn soft_divergence<R: Real>(
    logits: &[R],
    (ids, rest): &(Vec<(usize, R)>, R),
    of: &Softened<R>,
) -> (R, Vec<R>) {
    let log = |x: R| x.max(R::from_f64(1e-37)).ln();
    let class_of = |token: usize| ids.iter().position(|(id, _)| *id == token).unwrap_or(ids.len());
    let classes: Vec<R> = ids.iter().map(|(_, p)| *p).chain(of.rest.then_some(*rest)).collect();
    let largest = logits.iter().copied().fold(logits[0], R::max);
    let mut sums = vec![R::ZERO; classes.len()];
    let e: Vec<R> = logits.iter().map(|&x| (x - largest).exp()).collect();
    for (token, &x) in e.iter().enumerate() {
        if let Some(sum) = sums.get_mut(class_of(token)) {
            *sum += x;
        }
    }
    let all: R = sums.iter().copied().sum();
    let ours: Vec<R> = sums.iter().map(|&sum| sum / all).collect();
    let terms = classes.iter().zip(&ours).map(|(&p, &q)| match of.reverse {
        true => q * (log(q) - log(p)),
        false => p * (log(p) - log(q)),
    });
    let divergence: R = terms.sum();
    let slope = |(token, &x): (usize, &R)| {
        let class = class_of(token);
        let (Some(&p), Some(&q)) = (classes.get(class), ours.get(class)) else { return R::ZERO };
        match of.reverse {
            true => x / all * (log(q) - log(p) - divergence),
            false => x / all * (R::ONE - p / q),
        }
    };
    (divergence, e.iter().enumerate().map(slope).collect())
}

/// `objective_cross_entropy_backward` of logits over a temperature, loss and gradient of each row times its weight.
pub fn steered_cross_entropy_backward<R: Real>(
    logits: &mut [R],
    targets: &[u32],
    vocab_size: usize,
    scale: R,
    (objective, cap): ([R; 2], Option<f64>),
    steered: &Steered<R>,
) -> Vec<R> {
    let Steered { temperature, weights, soft } = steered;
    let weight = |row: usize| weights.get(row).copied().unwrap_or(R::ONE);
    let own = |(row, &target): (usize, &u32)| {
        if weight(row) == R::ZERO { IGNORE_INDEX } else { target }
    };
    let targets: Vec<u32> = targets.iter().enumerate().map(own).collect();
    logits.iter_mut().for_each(|x| *x = *x / *temperature);
    let cap = cap.map(|cap| cap / temperature.to_f64());
    let mut capped = logits.to_vec();
    soft_cap_forward(&mut capped, cap);
    let mut losses =
        objective_cross_entropy_backward(logits, &targets, vocab_size, scale, objective, cap);
    let counted = |(row, target): (usize, &u32)| (*target != IGNORE_INDEX).then_some(row);
    for row in soft.iter().flat_map(|_| targets.iter().enumerate().filter_map(counted)) {
        let Some(of) = soft else { break };
        let columns = row * vocab_size..(row + 1) * vocab_size;
        let ratio = *temperature / of.temperature;
        let scaled: Vec<R> = capped[columns.clone()].iter().map(|&x| ratio * x).collect();
        let (divergence, slopes) = soft_divergence(&scaled, &of.rows[row], of);
        let factor = of.share * of.temperature * of.temperature;
        losses[row] = (R::ONE - of.share) * losses[row] + factor * divergence;
        for ((to, slope), &y) in
            logits[columns.clone()].iter_mut().zip(slopes).zip(&capped[columns])
        {
            let by_cap = cap.map_or(R::ONE, |cap| {
                let t = y / R::from_f64(cap);
                R::ONE - t * t
            });
            *to = (R::ONE - of.share) * *to + scale * factor * ratio * slope * by_cap;
        }
    }
    for (row, (slopes, loss)) in logits.chunks_exact_mut(vocab_size).zip(&mut losses).enumerate() {
        *loss *= weight(row);
        slopes.iter_mut().for_each(|slope| *slope = *slope * weight(row) / *temperature);
    }
    losses
}

/// The numbers of a [`RowScore`] of a row of logits over a temperature.
pub fn row_score<R: Real>(logits: &[R], target: u32, temperature: R) -> [R; 4] {
    let logits: Vec<R> = logits.iter().map(|&x| x / temperature).collect();
    let (largest, sum) = softmax_terms(&logits);
    let mixed: R = logits.iter().map(|&x| (x - largest).exp() * (largest - x)).sum();
    let loss = cross_entropy_forward(&logits, &[target], logits.len())[0];
    [loss, sum.ln() + mixed / sum, largest, sum.ln()]
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
        let steering = match objective.steering {
            Steering::Nothing => SteeringNumbers::of(1.0),
            _ => on.uniform("steering")?,
        };
        let temperature = steering.temperature;
        if objective.steering == Steering::Scores {
            soft_cap_forward(own, cap);
            let rows = own.chunks_exact(vocabulary).zip(&targets);
            let scores = rows.flat_map(|(row, &target)| row_score(row, target, temperature));
            let scores: Vec<f32> = scores.collect();
            return on.write("scores", 4 * first, &scores);
        }
        let weights = match objective.steering.is_weighted() {
            true => on.f32("weights")?[first..first + rows].to_vec(),
            false => vec![],
        };
        let soft = match objective.steering {
            Steering::SoftTargets => Some(softened(on.u32("soft")?, first, rows, &steering)),
            _ => None,
        };
        let steered = Steered { temperature, weights, soft };
        let of = (more, cap);
        let losses = steered_cross_entropy_backward(own, &targets, vocabulary, scale, of, &steered);
        if gradient {
            write_gradients(on, row, &logits)?;
        }
        on.write("losses", first, &losses)
    }
}

/// Soft targets as kernels read them.
pub fn softened<R: Real>(
    words: &[u32],
    first: usize,
    rows: usize,
    of: &SteeringNumbers,
) -> Softened<R> {
    let real = |x: f32| R::from_f64(f64::from(x));
    let width = 2 * (of.soft_count as usize + 1);
    let row = |words: &[u32]| {
        let pairs = words.chunks_exact(2).map(|pair| (pair[0], real(f32::from_bits(pair[1]))));
        let mut pairs: Vec<_> = pairs.collect();
        let rest = pairs.pop().map_or(R::ZERO, |(_, rest)| rest);
        let ids = pairs.into_iter().filter(|(id, _)| *id != IGNORE_INDEX);
        (ids.map(|(id, p)| (id as usize, p)).collect(), rest)
    };
    let temperature = real(of.temperature) / real(of.soft_ratio);
    Softened {
        rows: words[first * width..(first + rows) * width].chunks_exact(width).map(row).collect(),
        temperature,
        share: real(of.soft_factor) / (temperature * temperature),
        reverse: of.reverse == 1,
        rest: of.rest == 1,
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

    /// Signed weights, temperatures, a cap, and both divergences with and without the rest.
    #[test]
    fn steered_gradient_matches_finite_differences() {
        let targets = [4, IGNORE_INDEX, 0, 6];
        let logits = noise(3, 4 * 7);
        let forms = [(false, true), (true, true), (false, false), (true, false)];
        let soft = forms.map(|(reverse, rest)| {
            let rest_of = if rest { 0.3 } else { 0.0 };
            let rows = vec![(vec![(4, 0.6), (1, 0.4 - rest_of)], rest_of); 4];
            Some(Softened { rows, temperature: 2.0, share: 0.75, reverse, rest })
        });
        for (soft, cap) in soft.into_iter().chain([None]).zip([None, Some(1.5)].into_iter().cycle())
        {
            for weights in [vec![], vec![-1.5, 3.0, 0.0, 0.25]] {
                let steered = Steered { temperature: 1.75, weights, soft: soft.clone() };
                let of = ([0.3, 0.02], cap);
                let losses = |x: &[f64]| {
                    let mut x = x.to_vec();
                    steered_cross_entropy_backward(&mut x, &targets, 7, 1.0, of, &steered)
                };
                let mut gradient = logits.clone();
                steered_cross_entropy_backward(&mut gradient, &targets, 7, 0.25, of, &steered);
                assert_gradient("d_logits", &gradient, &logits, &[0.25; 4], losses);
                assert!(gradient[7..14].iter().all(|x| *x == 0.0), "an ignored target");
                let zero = steered.weights.is_empty() || gradient[14..21].iter().all(|x| *x == 0.0);
                assert!(zero, "a weight of 0");
            }
        }
    }

    /// The divergences by their definition, on probabilities of all tokens.
    #[test]
    fn soft_divergences_are_those_of_all_classes() {
        let logits = [0.5f64, -1.0, 2.0, 0.0];
        let total: f64 = logits.iter().map(|x| x.exp()).sum();
        let q: Vec<f64> = logits.iter().map(|x| x.exp() / total).collect();
        let (ids, p) = (vec![(2, 0.5), (0, 0.3)], [0.5f64, 0.3, 0.2]);
        let ours = [q[2], q[0], q[1] + q[3]];
        for reverse in [false, true] {
            let of = Softened {
                rows: vec![(ids.clone(), 0.2)],
                temperature: 1.0,
                share: 1.0,
                reverse,
                rest: true,
            };
            let terms = p.iter().zip(&ours).map(|(p, q)| match reverse {
                true => q * (q / p).ln(),
                false => p * (p / q).ln(),
            });
            let expected: f64 = terms.sum();
            let (divergence, _) = soft_divergence(&logits, &of.rows[0], &of);
            assert_close("divergence", &[divergence], &[expected], 1e-14, 0.0);
        }
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
