//! Twin of family 13: one token from one row of logits.

use super::{Sample, SampleSeveral, TopLogits, TopRows};
use crate::error::Result;
use crate::kernels::loss::twin::log_sum_exp;
use crate::plan::Sampling;
use crate::random::{philox, uniform};
use crate::twins::{Operands, Real, Twin};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingOptions {
    /// 0 is greedy.
    pub temperature: f64,
    /// 0 keeps every token.
    pub top_k: usize,
    /// 1 keeps every token.
    pub top_p: f64,
    /// 0 keeps every token.
    pub min_p: f64,
    /// 1 is none.
    pub repetition_penalty: f64,
}

impl Default for SamplingOptions {
    fn default() -> Self {
        Self { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, repetition_penalty: 1.0 }
    }
}

/// The token and its natural-log probability under the model itself (softmax of the unchanged
/// logits), chosen by the uniform number `u` in [0, 1).
///
/// `bias` is one number for each token, or empty. It shifts the logits that are drawn from, after the
/// penalty.
///
/// In the order of Hugging Face's processors: penalty on tokens of `history` (a positive logit is
/// divided by it, a negative one multiplied), temperature, top-k, top-p, min-p. Each filter is a
/// threshold on the probability, so that tokens of equal probability stay or go together. What is
/// left is sampled by inverse CDF in the order of token ids. Greedy takes the lowest id among the
/// largest logits.
pub fn sample_forward<R: Real>(
    logits: &[R],
    history: &[u32],
    bias: &[R],
    options: &SamplingOptions,
    u: R,
) -> (u32, R) {
    let mut scores = penalised(logits, history, options.repetition_penalty);
    scores.iter_mut().zip(bias).for_each(|(score, bias)| *score += *bias);
    let greedy = argmax(&scores);
    let token =
        if options.temperature == 0.0 { greedy } else { draw(&scores, scores[greedy], options, u) };
    (token as u32, logits[token] - log_sum_exp(logits))
}

/// The `count` likeliest tokens under the model, the likeliest first and of equal logits the lowest id,
/// with the natural logarithms of their probabilities.
pub fn top_logits_forward<R: Real>(logits: &[R], count: usize) -> Vec<(u32, R)> {
    let whole = log_sum_exp(logits);
    let mut order: Vec<usize> = (0..logits.len()).collect();
    // The sort is stable.
    order.sort_by(|&a, &b| logits[b].partial_cmp(&logits[a]).expect("finite logits compare"));
    order.into_iter().take(count).map(|i| (i as u32, logits[i] - whole)).collect()
}

/// Index of the first of the largest.
fn argmax<R: Real>(scores: &[R]) -> usize {
    (1..scores.len()).fold(0, |best, i| if scores[i] > scores[best] { i } else { best })
}

fn penalised<R: Real>(logits: &[R], history: &[u32], penalty: f64) -> Vec<R> {
    let mut scores = logits.to_vec();
    let penalty = R::from_f64(penalty);
    for &token in history {
        // From the logit, not the score: a token counts once however often it occurs.
        let logit = logits[token as usize];
        scores[token as usize] = if logit > R::ZERO { logit / penalty } else { logit * penalty };
    }
    scores
}

fn draw<R: Real>(scores: &[R], largest: R, options: &SamplingOptions, u: R) -> usize {
    let temperature = R::from_f64(options.temperature);
    // Relative to the most likely token, whose weight is 1.
    let mut weights: Vec<R> = scores.iter().map(|&x| ((x - largest) / temperature).exp()).collect();
    let mut sorted = weights.clone();
    sorted.sort_by(|a, b| b.partial_cmp(a).expect("weights of finite logits compare"));
    if options.top_k > 0 && options.top_k < sorted.len() {
        keep_from(&mut weights, sorted[options.top_k - 1]);
    }
    if options.top_p < 1.0 {
        let threshold = nucleus(&sorted, &weights, options.top_p);
        keep_from(&mut weights, threshold);
    }
    if options.min_p > 0.0 {
        keep_from(&mut weights, R::from_f64(options.min_p));
    }
    let goal = u * weights.iter().copied().sum();
    let mut cumulative = R::ZERO;
    // Rounding may leave the goal just past the end: the last kept token then.
    let mut last = 0;
    for (i, &weight) in weights.iter().enumerate().filter(|&(_, &weight)| weight > R::ZERO) {
        (cumulative, last) = (cumulative + weight, i);
        if cumulative > goal {
            break;
        }
    }
    last
}

fn keep_from<R: Real>(weights: &mut [R], threshold: R) {
    weights.iter_mut().filter(|w| **w < threshold).for_each(|w| *w = R::ZERO);
}

/// The largest threshold such that the kept weights from it on reach `top_p` of their whole.
fn nucleus<R: Real>(sorted: &[R], kept: &[R], top_p: f64) -> R {
    let goal = R::from_f64(top_p) * kept.iter().copied().sum();
    let mut cumulative = R::ZERO;
    for &weight in sorted {
        cumulative += weight;
        if cumulative >= goal {
            return weight;
        }
    }
    R::ZERO
}

/// Keeps the draws apart from other streams of a seed (`13_sample.wgsl`).
const DRAWS: u32 = 0x7361_6d70;

impl Twin for Sample {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Self { vocabulary, biased } = *self;
        let options: Sampling = on.uniform("options")?;
        let mut step = on.step()?;
        let bias = if biased { on.first("bias", vocabulary)?.to_vec() } else { vec![] };
        let (token, probability) = draw_row(on, (vocabulary, 0), &options, &bias, step.draws)?;
        // After a refused submit the draws lag, and are outside.
        let turn = 2 * step.draws.wrapping_sub(options.first_draw) as usize;
        if let Some(slot) = on.u32_mut("drawn")?.get_mut(turn..turn + 2) {
            slot.copy_from_slice(&[token, probability.to_bits()]);
        }
        on.u32_mut("token")?[0] = token;
        on.u32_mut("seen")?[token as usize / 32] |= 1 << (token % 32);
        step.position += 1;
        step.draws += 1;
        let words = bytemuck::cast_slice(bytemuck::bytes_of(&step));
        on.u32_mut("step")?[..words.len()].copy_from_slice(words);
        Ok(())
    }
}

/// A token for a row of logits, and its log-probability.
fn draw_row(
    on: &Operands,
    (vocabulary, row): (usize, usize),
    options: &Sampling,
    bias: &[f32],
    draws: u32,
) -> Result<(u32, f32)> {
    let logits = &on.first("logits", (row + 1) * vocabulary)?[row * vocabulary..];
    let words = vocabulary.div_ceil(32);
    let seen = &on.u32("seen")?[row * words..][..words];
    let in_text = |token: &u32| seen[*token as usize / 32] >> (token % 32) & 1 == 1;
    let history: Vec<u32> = (0..vocabulary as u32).filter(in_text).collect();
    let chosen = SamplingOptions {
        temperature: f64::from(options.temperature),
        top_k: options.top_k as usize,
        top_p: f64::from(options.top_p),
        min_p: f64::from(options.min_p),
        repetition_penalty: f64::from(options.repetition_penalty),
    };
    let share = uniform(philox([draws, 0, 0, DRAWS], options.seed)[0]);
    Ok(sample_forward(logits, &history, bias, &chosen, share))
}

impl Twin for SampleSeveral {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Self { vocabulary, rows } = *self;
        let (each, seen_words) = (on.u32("choices")?.len() / rows, vocabulary.div_ceil(32));
        for row in 0..rows {
            let choice = on.u32("choices")?[row * each..][..each].to_vec();
            let options: Sampling =
                bytemuck::pod_read_unaligned(bytemuck::cast_slice(&choice[..8]));
            let position = (row as u32).wrapping_sub(on.u32("documents")?[row]);
            let draws = position.wrapping_add(choice[8]);
            let (token, probability) = draw_row(on, (vocabulary, row), &options, &[], draws)?;
            let slot = draws.wrapping_sub(options.first_draw) as usize;
            let drawn = on.u32_mut("drawn")?;
            if slot < drawn.len() / 2 / rows {
                let at = 2 * (slot * rows + row);
                drawn[at..at + 2].copy_from_slice(&[token, probability.to_bits()]);
            }
            on.u32_mut("token")?[row] = token;
            on.u32_mut("seen")?[row * seen_words + token as usize / 32] |= 1 << (token % 32);
            if position < choice[9] {
                let document = &mut on.u32_mut("documents")?[row];
                *document = document.wrapping_sub(1);
            }
        }
        Ok(())
    }
}

impl Twin for TopLogits {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Self { vocabulary, count } = *self;
        let options: Sampling = on.uniform("options")?;
        let turn = (on.step()?.draws - options.first_draw) as usize;
        let likeliest = top_logits_forward(on.first("logits", vocabulary)?, count);
        let words: Vec<u32> =
            likeliest.into_iter().flat_map(|(token, logprob)| [token, logprob.to_bits()]).collect();
        on.u32_mut("top")?[turn * words.len()..][..words.len()].copy_from_slice(&words);
        Ok(())
    }
}

impl Twin for TopRows {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Self { vocabulary, count } = *self;
        let range = on.range()?;
        let rows = range.rows_of(on.tokens()?);
        let logits = on.first("logits", rows * vocabulary)?;
        let words: Vec<u32> =
            logits.chunks(vocabulary).flat_map(|row| top_row(row, count)).collect();
        let first = 2 * count * range.row0 as usize;
        on.u32_mut("top")?[first..][..words.len()].copy_from_slice(&words);
        Ok(())
    }
}

/// The likeliest tokens of a row, each with the bits of its logit.
pub fn top_row(row: &[f32], count: usize) -> Vec<u32> {
    let likeliest = top_logits_forward(row, count).into_iter();
    likeliest.flat_map(|(token, _)| [token, row[token as usize].to_bits()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::twins::check::assert_close;

    /// Tokens that `options` can draw, and how often of a hundred even values of u.
    fn histogram(probabilities: &[f64], options: SamplingOptions) -> Vec<usize> {
        let logits: Vec<f64> = probabilities.iter().map(|p| p.ln()).collect();
        let mut counts = vec![0; logits.len()];
        for i in 0..100 {
            counts[sample_forward(&logits, &[], &[], &options, (i as f64 + 0.5) / 100.0).0
                as usize] += 1;
        }
        counts
    }

    const P: [f64; 5] = [0.1, 0.4, 0.05, 0.25, 0.2];

    #[test]
    fn plain_sampling_follows_the_distribution_in_id_order() {
        let options = SamplingOptions::default();
        assert_eq!(histogram(&P, options), [10, 40, 5, 25, 20]);
        let logits = P.map(f64::ln);
        assert_eq!(sample_forward(&logits, &[], &[], &options, 0.0).0, 0);
        let (token, logprob) = sample_forward(&logits, &[], &[], &options, 0.499);
        assert_eq!(token, 1);
        assert_close("logprob", &[logprob], &[0.4f64.ln()], 1e-14, 0.0);
        assert_eq!(
            sample_forward(&logits.map(|x| x as f32), &[], &[], &options, 1.0 - f32::EPSILON / 2.0)
                .0,
            4
        );
    }

    #[test]
    fn greedy_takes_the_lowest_id_of_a_tie() {
        let options = SamplingOptions { temperature: 0.0, ..Default::default() };
        assert_eq!(sample_forward(&[1.0f32, 7.0, -2.0, 7.0], &[], &[], &options, 0.9).0, 1);
    }

    #[test]
    fn a_bias_shifts_the_logits_behind_the_penalty() {
        let draw = |bias: &[f64], penalty| {
            let options = SamplingOptions {
                temperature: 0.0,
                repetition_penalty: penalty,
                ..Default::default()
            };
            sample_forward(&[1.0, 3.0, 2.0], &[1], bias, &options, 0.5)
        };
        assert_eq!(draw(&[], 1.0).0, 1);
        assert_eq!(draw(&[2.5, 0.0, 0.0], 1.0).0, 0);
        assert_eq!(draw(&[0.0, -1e30, 0.0], 1.0).0, 2);
        // 3 / 2 + 0.6 is more than 2, (3 + 0.6) / 2 would not be.
        assert_eq!(draw(&[0.0, 0.6, 0.0], 2.0).0, 1);
        // The log-probability is that of the model.
        assert_close(
            "logprob",
            &[draw(&[2.5, 0.0, 0.0], 1.0).1],
            &[draw(&[], 1.0).1 - 2.0],
            1e-14,
            0.0,
        );
    }

    #[test]
    fn the_likeliest_come_in_order_of_their_logits_then_ids() {
        let logits = [1.0f64, 4.0, -2.0, 4.0, 1.0, 0.5];
        let top = top_logits_forward(&logits, 5);
        assert_eq!(top.iter().map(|(token, _)| *token).collect::<Vec<_>>(), [1, 3, 0, 4, 5]);
        let sum: f64 = top_logits_forward(&logits, 6).iter().map(|(_, p)| p.exp()).sum();
        assert_close("sum", &[sum], &[1.0], 1e-14, 0.0);
    }

    #[test]
    fn temperature_sharpens() {
        let options = SamplingOptions { temperature: 0.5, ..Default::default() };
        // Squares of P: 0.01, 0.16, 0.0025, 0.0625, 0.04 of 0.275.
        assert_eq!(histogram(&P, options), [4, 58, 1, 22, 15]);
    }

    #[test]
    fn filters_keep_what_they_should() {
        let kept = |options: SamplingOptions| -> Vec<usize> {
            let counts = histogram(&P, options);
            (0..5).filter(|&i| counts[i] > 0).collect()
        };
        let all = SamplingOptions::default();
        assert_eq!(kept(SamplingOptions { top_k: 1, ..all }), [1]);
        assert_eq!(kept(SamplingOptions { top_k: 3, ..all }), [1, 3, 4]);
        assert_eq!(kept(SamplingOptions { top_k: 9, ..all }), [0, 1, 2, 3, 4]);
        assert_eq!(kept(SamplingOptions { top_p: 0.6, ..all }), [1, 3]);
        assert_eq!(kept(SamplingOptions { top_p: 0.7, ..all }), [1, 3, 4]);
        assert_eq!(kept(SamplingOptions { top_p: 0.0, ..all }), [1]);
        assert_eq!(kept(SamplingOptions { min_p: 0.3, ..all }), [1, 3, 4]);
        assert_eq!(kept(SamplingOptions { min_p: 1.0, ..all }), [1]);
        // top-p counts within what top-k left: 0.4 of 0.65 is not 0.62, 0.65 is.
        assert_eq!(kept(SamplingOptions { top_k: 2, top_p: 0.6, ..all }), [1]);
        assert_eq!(kept(SamplingOptions { top_k: 2, top_p: 0.62, ..all }), [1, 3]);
    }

    #[test]
    fn equal_probabilities_stay_together() {
        let options = SamplingOptions { top_k: 2, ..Default::default() };
        assert_eq!(histogram(&[0.2, 0.4, 0.2, 0.2], options), [20, 40, 20, 20]);
        let options = SamplingOptions { top_p: 0.5, ..Default::default() };
        assert_eq!(histogram(&[0.25; 4], options), [25; 4]);
    }

    #[test]
    fn repetition_is_penalised_once_by_sign() {
        let scores = penalised(&[2.0, -2.0, 3.0], &[0, 1, 0, 0], 2.0);
        assert_eq!(scores, [1.0, -4.0, 3.0]);
        let options =
            SamplingOptions { temperature: 0.0, repetition_penalty: 2.0, ..Default::default() };
        let (token, logprob) = sample_forward(&[1.0, 3.0, 2.0], &[1], &[], &options, 0.0);
        assert_eq!(token, 2);
        let z: f64 = 1f64.exp() + 3f64.exp() + 2f64.exp();
        assert_close("logprob", &[logprob], &[2.0 - z.ln()], 1e-14, 0.0);
    }
}
