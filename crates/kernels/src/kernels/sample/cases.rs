//! Family 13: sampling against the twin, draw by draw, with the same random stream.

mod examples;
mod likeliest;
mod several;

pub(crate) use examples::examples;

use super::Sample;
use super::twin::{SamplingOptions, sample_forward};
use crate::kernels::loss::twin::log_sum_exp;
use crate::plan::Sampling;
use crate::random::{philox, split, uniform};
use crate::testing::harness::{Job, Operand, Outputs, Step};
use crate::testing::lane::Lane;
use crate::testing::ledger::{Bits, Given};
use crate::testing::measure::{close_to_terms, forbid, hold, of, text, wide};
use crate::testing::{Case, Outcome};
use std::cmp::Ordering;
use std::rc::Rc;

const DRAWS: usize = 300;
/// Draws that the text made before: the stream and the slots begin after them.
const EARLIER: u32 = 5;
const POSITION: u32 = 40;
/// The stream's name in the counter: "samp".
const STREAM: u32 = 0x7361_6d70;
/// How near to the border of its share a draw may take the other token.
const ROUNDING: f64 = 2e-6;

pub(crate) fn cases() -> Vec<Case> {
    let base = SamplingOptions::default();
    let filters = [
        ("plain", base),
        ("temperature", SamplingOptions { temperature: 0.6, ..base }),
        ("top-k", SamplingOptions { top_k: 7, temperature: 1.3, ..base }),
        ("top-k above the vocabulary", SamplingOptions { top_k: 5000, ..base }),
        ("top-p", SamplingOptions { top_p: 0.85, ..base }),
        ("min-p", SamplingOptions { min_p: 0.05, temperature: 0.8, ..base }),
        (
            "all filters with penalty",
            SamplingOptions {
                temperature: 0.9,
                top_k: 40,
                top_p: 0.92,
                min_p: 0.01,
                repetition_penalty: 1.3,
            },
        ),
    ];
    let mut cases: Vec<Case> = filters
        .into_iter()
        .map(|(name, options)| {
            Case::new(format!("sample {name}"), move |lane| drawn(lane, options))
        })
        .collect();
    cases.push(Case::new("sample with a bias", biased));
    cases.push(Case::new("sample with a mask", masked));
    cases.push(Case::new("sample greedy with ties and penalty", greedy));
    cases.push(Case::new("sample distribution", distribution));
    cases.extend(several::cases().into_iter().chain(likeliest::cases()));
    cases
}

/// Bit set of tokens.
fn seen(history: &[u32], vocabulary: usize) -> Vec<u32> {
    let mut words = vec![0u32; vocabulary.div_ceil(32)];
    history.iter().for_each(|token| words[*token as usize / 32] |= 1 << (token % 32));
    words
}

/// `draws` tokens from the same logits by every variant; `bias` has a number for each, or none.
async fn sample(
    lane: &Lane,
    logits: &[f32],
    bias: &[f32],
    history: &[u32],
    options: SamplingOptions,
    draws: usize,
) -> Result<Vec<(Job, Outputs)>, String> {
    let vocabulary = logits.len();
    let chosen = Sample { vocabulary, biased: !bias.is_empty() };
    let made = lane.variants_of(chosen).map_err(text)?;
    let sampling = Sampling {
        temperature: options.temperature as f32,
        top_p: options.top_p as f32,
        min_p: options.min_p as f32,
        repetition_penalty: options.repetition_penalty as f32,
        top_k: options.top_k as u32,
        seed: split(lane.seed),
        first_draw: EARLIER,
    };
    let step = Step { position: POSITION, draws: EARLIER, ..Step::of(1) };
    let jobs: Vec<_> = made
        .iter()
        .map(|kernel| {
            let mut operands = vec![
                Operand::floats(logits),
                Operand::words(&seen(history, vocabulary)),
                Operand::poison(1),
                Operand::poison(2 * draws),
                Operand::uniform(&step),
                Operand::uniform(&sampling),
            ];
            if !bias.is_empty() {
                operands.push(Operand::floats(bias));
            }
            Job { repeat: draws, ..Job::new(kernel, 1, operands) }
        })
        .collect();
    let got = lane.run(&jobs).await.map_err(text)?;
    Ok(jobs.into_iter().zip(got).collect())
}

/// The random number of a draw.
fn share(seed: u64, draw: usize) -> f64 {
    let counter = [EARLIER + draw as u32, 0, 0, STREAM];
    f64::from(uniform(philox(counter, split(seed))[0]))
}

/// What every variant must leave besides the tokens themselves.
fn bookkeeping(got: &Outputs, history: &[u32], vocabulary: usize) -> Result<Vec<u32>, String> {
    let draws = got.words(2).len() / 2;
    let tokens: Vec<u32> = got.words(2).iter().step_by(2).copied().collect();
    if let Some(token) = tokens.iter().find(|&&token| token as usize >= vocabulary) {
        return Err(format!("drew token {token} of {vocabulary}"));
    }
    let text: Vec<u32> = history.iter().chain(&tokens).copied().collect();
    if got.words(0) != seen(&text, vocabulary) {
        return Err("the set of seen tokens is wrong".into());
    }
    if got.words(1) != &tokens[draws - 1..] {
        return Err("the next input is not the last token".into());
    }
    if got.words(3)[1] != POSITION + draws as u32 || got.words(3)[3] != EARLIER + draws as u32 {
        return Err("position and draws did not advance by one a draw".into());
    }
    Ok(tokens)
}

/// Whether the twin draws `token` somewhere in the range of shares. Tokens come in the order of the shares, and
/// one between two others may have less mass than the range is long.
fn drawn_within(token: u32, [mut low, mut high]: [f64; 2], at: impl Fn(f64) -> u32) -> bool {
    if at(low) == token || at(high) == token {
        return true;
    }
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        match at(middle).cmp(&token) {
            Ordering::Less => low = middle,
            Ordering::Equal => return true,
            Ordering::Greater => high = middle,
        }
    }
    false
}

/// Compares each draw with the twin's. A draw that falls within rounding of the border between
/// tokens may take any of them, and the nucleus may end a token earlier or later.
fn against_twin(
    lane: &Lane,
    got: &Outputs,
    [logits, bias]: [&[f32]; 2],
    history: &[u32],
    options: SamplingOptions,
) -> Result<(), String> {
    let draws = got.words(2).len() / 2;
    let (exact, bias) = (wide(logits), wide(bias));
    let shares = || (0..draws).map(|draw| share(lane.seed, draw));
    let own = Given(|| twin_draws(&exact, history, &bias, &options, shares()));
    let inputs = [&exact[..], &bias, &[ROUNDING]].map(Bits);
    hold(("draws", inputs, history, format!("{options:?}"), own), || {
        each_drawn(lane.seed, got, [&exact, &bias], history, options)
    })
}

/// What the twin draws, each token of what it has drawn before. A kernel's own draws decide what is held of them, so a
/// listing, which has none, takes these.
pub(crate) fn twin_draws(
    exact: &[f64],
    history: &[u32],
    bias: &[f64],
    options: &SamplingOptions,
    shares: impl Iterator<Item = f64>,
) -> Vec<u32> {
    let mut text = history.to_vec();
    for u in shares {
        text.push(sample_forward(exact, &text, bias, options, u).0);
    }
    text.split_off(history.len())
}

fn each_drawn(
    seed: u64,
    got: &Outputs,
    [exact, bias]: [&[f64]; 2],
    history: &[u32],
    options: SamplingOptions,
) -> Result<(), String> {
    let mut text = history.to_vec();
    let tokens = bookkeeping(got, history, exact.len())?;
    let whole = log_sum_exp(exact);
    let mut expected = Vec::new();
    for (draw, &token) in tokens.iter().enumerate() {
        let u = share(seed, draw);
        let range = [u - ROUNDING, u + ROUNDING].map(|u| u.clamp(0.0, 1.0 - 1e-9));
        let kept = |top_p: f64| SamplingOptions { top_p, ..options };
        let nuclei = [options.top_p, options.top_p - ROUNDING, options.top_p + ROUNDING].map(kept);
        let at = |options, u| sample_forward(exact, &text, bias, options, u).0;
        if !nuclei.iter().any(|options| drawn_within(token, range, |u| at(options, u))) {
            let twin = at(&options, u);
            return Err(format!("draw {draw} at {u} gave {token}; the twin gives {twin}"));
        }
        expected.push(exact[token as usize] - whole);
        text.push(token);
    }
    let logprobs: Vec<f32> =
        got.words(2).iter().skip(1).step_by(2).map(|&bits| f32::from_bits(bits)).collect();
    // A difference of logits: as exact as those are.
    let terms: Vec<f64> = tokens.iter().map(|&token| exact[token as usize]).collect();
    close_to_terms("log-probabilities", &logprobs, &expected, &terms, ROUNDING)
}

async fn drawn(lane: Rc<Lane>, options: SamplingOptions) -> Outcome {
    // With a large vocabulary few invocations would turn longer, for a threshold, than lavapipe lets a kernel.
    let plain = options.top_k == 0 && options.top_p >= 1.0;
    let sizes = [5, 61, 1031, 17_003];
    for &vocabulary in &sizes[..if plain { 4 } else { 3 }] {
        let logits: Vec<f32> = lane.normal(vocabulary).into_iter().map(|x| 2.0 * x).collect();
        let history = lane.integers(9, vocabulary);
        for (job, got) in sample(&lane, &logits, &[], &history, options, 40).await? {
            against_twin(&lane, &got, [&logits, &[]], &history, options)
                .map_err(of(&job.kernel))?;
        }
    }
    Ok(lane.summary())
}

async fn biased(lane: Rc<Lane>) -> Outcome {
    let base = SamplingOptions::default();
    let all = [
        base,
        SamplingOptions { temperature: 0.0, ..base },
        SamplingOptions { top_k: 5, top_p: 0.9, repetition_penalty: 1.4, temperature: 0.7, ..base },
    ];
    for vocabulary in [1, 61, 1031] {
        let logits: Vec<f32> = lane.normal(vocabulary).into_iter().map(|x| 2.0 * x).collect();
        let bias: Vec<f32> = lane.normal(vocabulary).into_iter().map(|x| 3.0 * x).collect();
        let history = lane.integers(9, vocabulary);
        for options in all {
            for (job, got) in sample(&lane, &logits, &bias, &history, options, 20).await? {
                against_twin(&lane, &got, [&logits, &bias], &history, options)
                    .map_err(of(&job.kernel))?;
            }
        }
    }
    Ok(lane.summary())
}

/// What the host makes of a mask: a bias far below any logit, and a top-k of the tokens left.
async fn masked(lane: Rc<Lane>) -> Outcome {
    for vocabulary in [2, 61, 1031] {
        // The others would be drawn nearly always.
        let mut logits: Vec<f32> = lane.normal(vocabulary).into_iter().map(|x| 20.0 + x).collect();
        let mut bias = vec![-1e30; vocabulary];
        let mut left = lane.integers(vocabulary.div_ceil(8), vocabulary);
        left.sort_unstable();
        left.dedup();
        for &token in &left {
            logits[token as usize] -= 25.0;
            bias[token as usize] = 0.5;
        }
        for temperature in [0.0, 1e-3, 1.0, 50.0] {
            let options = SamplingOptions { temperature, top_k: left.len(), ..Default::default() };
            for (job, got) in sample(&lane, &logits, &bias, &[0], options, 40).await? {
                against_twin(&lane, &got, [&logits, &bias], &[0], options)
                    .map_err(of(&job.kernel))?;
                let wrong = || got.words(2).iter().step_by(2).find(|token| !left.contains(token));
                hold(("left", &left), || match wrong() {
                    Some(token) => Err(format!("drew the masked token {token}")),
                    None => Ok(()),
                })
                .map_err(of(&job.kernel))?;
            }
        }
    }
    Ok(lane.summary())
}

async fn greedy(lane: Rc<Lane>) -> Outcome {
    let options = SamplingOptions { temperature: 0.0, ..SamplingOptions::default() };
    for vocabulary in [1, 61, 1031] {
        // The largest logit three times; then with a penalty on the first, on both signs.
        for (penalty, largest) in [(1.0, 9.0), (1.5, 9.0), (1.5, -0.25)] {
            let mut logits: Vec<f32> =
                lane.normal(vocabulary).into_iter().map(|x| -1.0 - x.abs()).collect();
            let mut ties = lane.integers(3, vocabulary);
            ties.sort_unstable();
            ties.iter().for_each(|&token| logits[token as usize] = largest);
            let options = SamplingOptions { repetition_penalty: penalty, ..options };
            let history = if penalty == 1.0 { vec![] } else { vec![ties[0]] };
            for (job, got) in sample(&lane, &logits, &[], &history, options, 5).await? {
                against_twin(&lane, &got, [&logits, &[]], &history, options)
                    .map_err(of(&job.kernel))?;
                let other = || penalty == 1.0 && got.words(2)[0] != ties[0];
                let message = || "a tie goes to the lowest token".into();
                forbid(("tie", &ties), other, message).map_err(of(&job.kernel))?;
            }
        }
    }
    Ok(lane.summary())
}

/// Pearson's statistic of 300 draws over eight tokens.
async fn distribution(lane: Rc<Lane>) -> Outcome {
    /// Seven degrees of freedom exceed this once in some millions.
    const MOST: f64 = 42.0;
    let logits: Vec<f32> = lane.normal(8).into_iter().map(|x| 0.5 * x).collect();
    let options = SamplingOptions::default();
    for (job, got) in sample(&lane, &logits, &[], &[], options, DRAWS).await? {
        let exact = wide(&logits);
        let whole = log_sum_exp(&exact);
        let expected: Vec<f64> =
            exact.iter().map(|logit| (logit - whole).exp() * DRAWS as f64).collect();
        hold(("counts", Bits(&expected), MOST.to_bits()), || {
            let tokens = bookkeeping(&got, &[], 8)?;
            let share = |(token, expected): (usize, &f64)| {
                let count = tokens.iter().filter(|&&t| t as usize == token).count();
                (count as f64 - expected).powi(2) / expected
            };
            let statistic: f64 = expected.iter().enumerate().map(share).sum();
            if statistic > MOST {
                return Err(format!("the draws' chi-square is {statistic:.1}"));
            }
            Ok(())
        })
        .map_err(of(&job.kernel))?;
    }
    Ok(lane.summary())
}
