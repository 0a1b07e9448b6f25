//! A step's own objective on the double: weights, what their sum is divided by, temperatures, soft targets; scores.

use super::Double;
use super::lora_tests::{ALL, lora};
use super::session_tests::{options, reloaded};
use super::tests::{ALTERNATING, NORMED, Pair, TIED, UNTIED, batch, integers, named};
use crate::data::{Batch, IGNORE_INDEX};
use crate::error::{Error, ErrorCode};
use crate::gpu::{Gpu, LocalFuture};
use crate::session::{
    Adapter, GivenGradient, GivenRows, GradientBy, NO_PROGRESS, Normalize, Precision, ScoreOptions,
    SoftTargets, StepObjective, Trainer, TrainerOptions,
};
use crate::twins::{
    Softened, Steered, cross_entropy_backward, log_sum_exp, steered_cross_entropy_backward,
};
use pollster::block_on;
use std::cell::Cell;
use std::rc::Rc;

fn weighted(weights: &[f32], normalize: Normalize) -> StepObjective {
    StepObjective { weights: Some(weights.to_vec()), normalize, ..StepObjective::default() }
}

fn trainer(pair: &Pair, micro_steps: u64, more: TrainerOptions) -> Rc<Trainer> {
    let options = TrainerOptions { gradient_accumulation: micro_steps, ..more };
    block_on(Trainer::create(&pair.model, options, NO_PROGRESS)).unwrap()
}

fn gradients(trainer: &Trainer) -> Vec<f32> {
    let read = |index| block_on(trainer.read_gradient(index)).unwrap();
    (0..trainer.layout().tensors.len()).flat_map(read).collect()
}

fn apart(a: &[f32], b: &[f32]) -> f64 {
    let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
    let difference = norm(&mut a.iter().zip(b).map(|(a, b)| f64::from(a - b)));
    difference / norm(&mut b.iter().map(|b| f64::from(*b)))
}

/// Three documents of 10 tokens: parts of a batch that hold whole documents.
fn documents(seed: u32) -> Batch {
    let targets = integers(seed, 30, 61);
    let starts = (0..30).map(|i| i / 10 * 10).collect();
    Batch::new(integers(seed + 1, 30, 61), targets, Some(starts))
}

fn part(of: &Batch, rows: std::ops::Range<usize>) -> Batch {
    let starts = of.documents[rows.clone()].iter().map(|start| start - rows.start as u32);
    let (tokens, targets) = (of.tokens[rows.clone()].to_vec(), of.targets[rows.clone()].to_vec());
    Batch::new(tokens, targets, Some(starts.collect()))
}

/// Signed weights, 0 among them.
fn weights(count: usize) -> Vec<f32> {
    (0..count).map(|i| [1.5, -0.75, 0.0, 2.0, -3.0, 0.25, 1.0][i % 7]).collect()
}

/// Micro-batches of 3 and 7 targets, and one of 10.
#[test]
fn micro_batches_are_one_batch_whatever_is_divided_by() {
    let starts = (0..10).map(|i| if i < 3 { 0 } else { 3 }).collect();
    let whole = Batch::new(integers(4, 10, 61), integers(3, 10, 61), Some(starts));
    let (all, first, second) = (weights(10), part(&whole, 0..3), part(&whole, 3..10));
    for normalize in [Normalize::Targets, Normalize::Weights, Normalize::Number(4.5)] {
        let pair = Pair::new(&Double::floor(), TIED);
        let one = trainer(&pair, 1, options());
        let metrics = block_on(one.step_by(&whole, &weighted(&all, normalize))).unwrap();
        let expected = gradients(&one);
        let pair = Pair::new(&Double::floor(), TIED);
        let two = trainer(&pair, 2, options());
        block_on(two.step_by(&first, &weighted(&all[..3], normalize))).unwrap();
        let cut = block_on(two.step_by(&second, &weighted(&all[3..], normalize))).unwrap();
        let error = apart(&gradients(&two), &expected);
        assert!(error < 1e-6, "{normalize:?}: gradients are {error} apart");
        assert!((cut.loss - metrics.loss).abs() < 1e-6, "{} and {}", cut.loss, metrics.loss);
        let norms = [cut, metrics].map(|metrics| metrics.grad_norm.unwrap());
        assert!((norms[0] / norms[1] - 1.0).abs() < 1e-6, "{norms:?}");
    }
}

/// One sum, divided by each N.
#[test]
fn what_is_divided_by_is_what_was_asked_for() {
    let (whole, all) = (documents(5), weights(30));
    let of = |normalize| {
        let pair = Pair::new(&Double::floor(), TIED);
        let trainer = trainer(&pair, 1, options());
        let loss = block_on(trainer.step_by(&whole, &weighted(&all, normalize))).unwrap().loss;
        (loss, gradients(&trainer))
    };
    let magnitude: f64 = all.iter().map(|x| f64::from(x.abs())).sum();
    let one = of(Normalize::Number(1.0));
    for (normalize, divisor) in [(Normalize::Targets, 30.0), (Normalize::Weights, magnitude)] {
        let (loss, gradients) = of(normalize);
        assert!((loss * divisor / one.0 - 1.0).abs() < 1e-6);
        let scaled: Vec<f32> = gradients.iter().map(|x| x * divisor as f32).collect();
        assert!(apart(&scaled, &one.1) < 1e-6);
    }
}

/// With smoothing, z-loss and a temperature; with soft targets beside the hard ones, and without.
#[test]
fn a_weighted_loss_is_the_twins() {
    let pair = Pair::new(&Double::floor(), NORMED);
    let text = Batch::next_tokens(integers(23, 20, 61));
    let logits = block_on(pair.model.logits(&text.tokens, Default::default(), NO_PROGRESS));
    let logits: Vec<f64> = logits.unwrap().into_iter().map(f64::from).collect();
    let ids: Vec<u32> = (0..20).flat_map(|row| [row * 3 % 61, (row * 3 + 7) % 61]).collect();
    let probabilities = [0.5f32, 0.25].repeat(20);
    for reverse in [false, true] {
        let rows =
            ids.chunks(2).map(|two| (vec![(two[0] as usize, 0.5), (two[1] as usize, 0.25)], 0.25));
        let (temperature, share, rest) = (2.0, 0.75, true);
        let softened = Softened { rows: rows.collect(), temperature, share, reverse, rest };
        let soft = SoftTargets {
            ids: ids.clone(),
            probabilities: probabilities.clone(),
            reverse,
            renormalized: false,
            share,
            temperature,
        };
        for soft in [None, Some((soft, softened))] {
            let (soft, softened) = soft.unzip();
            let all = weights(20);
            let wide = all.iter().map(|x| f64::from(*x)).collect();
            let steered = Steered { temperature: 1.5, weights: wide, soft: softened };
            let own = &mut logits.clone();
            let of = ([0.3, 0.1], None);
            let losses = steered_cross_entropy_backward(own, &text.targets, 61, 1.0, of, &steered);
            let wanted = losses.iter().sum::<f64>() / 19.0;
            let objective = StepObjective {
                temperature: Some(1.5),
                soft,
                ..weighted(&all, Normalize::Targets)
            };
            let options = TrainerOptions {
                label_smoothing: 0.3,
                z_loss: 0.1,
                learning_rate: 1e-30,
                ..options()
            };
            let trainer = trainer(&pair, 1, options);
            let loss = block_on(trainer.step_by(&text, &objective)).unwrap().loss;
            assert!((loss - wanted).abs() <= 2e-5 * wanted.abs(), "{loss} for {wanted}");
        }
    }
}

#[test]
fn weights_of_one_are_none_to_the_bit_and_of_zero_are_ignored() {
    let text = documents(7);
    let of = |batch: &Batch, objective: &StepObjective| {
        let pair = Pair::new(&Double::floor(), TIED);
        let trainer = trainer(&pair, 1, options());
        let loss = block_on(trainer.step_by(batch, objective)).unwrap().loss;
        let bits = gradients(&trainer).iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        (loss.to_bits(), bits)
    };
    let pair = Pair::new(&Double::floor(), TIED);
    let plain = trainer(&pair, 1, options());
    let loss = block_on(plain.step(&text)).unwrap().loss.to_bits();
    let bits: Vec<_> = gradients(&plain).iter().map(|x| x.to_bits()).collect();
    let before = (loss, bits);
    assert_eq!(of(&text, &StepObjective::default()), before);
    for normalize in [Normalize::Targets, Normalize::Weights] {
        assert_eq!(of(&text, &weighted(&[1.0; 30], normalize)), before);
    }
    // Rows of weight 0 against ignored rows, in the same kernel.
    let mut some = vec![2.0f32; 30];
    let mut ignored = text.clone();
    for row in (0..30).step_by(4) {
        (some[row], ignored.targets[row]) = (0.0, IGNORE_INDEX);
    }
    let normalize = Normalize::Number(7.0);
    assert_eq!(
        of(&text, &weighted(&some, normalize)),
        of(&ignored, &weighted(&[2.0; 30], normalize))
    );
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let pair = Pair::new(&Double::floor(), TIED);
    let trainer = trainer(&pair, 2, options());
    let text = part(&documents(9), 0..10);
    let refused = |objective: &StepObjective, needle: &str| {
        let before = trainer.steps();
        let error = block_on(trainer.step_by(&text, objective)).unwrap_err();
        assert!(error.message.contains(needle), "{error}");
        assert_eq!(error.code, ErrorCode::InvalidOptions, "{error}");
        assert_eq!(trainer.steps(), before);
    };
    let ones = [2.0f32; 10];
    refused(&weighted(&[2.0; 9], Normalize::Targets), "targetWeights has 9");
    for bad in [f32::NAN, f32::INFINITY] {
        let mut own = ones;
        own[3] = bad;
        refused(&weighted(&own, Normalize::Targets), "targetWeights[3]");
    }
    for number in [0.0, -1.0, f64::NAN, 1e-300] {
        refused(&weighted(&ones, Normalize::Number(number)), "normalize is");
    }
    for temperature in [0.0, -1.0, f64::INFINITY] {
        let objective = StepObjective { temperature: Some(temperature), ..Default::default() };
        refused(&objective, "temperature is");
    }
    block_on(trainer.step_by(&text, &weighted(&ones, Normalize::Number(3.0)))).unwrap();
    refused(&weighted(&ones, Normalize::Number(4.0)), "normalize is 4.0");
    refused(&weighted(&ones, Normalize::Weights), "must have the same");
    refused(&StepObjective::default(), "normalize is \"targets\"");
    let done = block_on(trainer.step_by(&text, &weighted(&ones, Normalize::Number(3.0)))).unwrap();
    assert!(done.grad_norm.is_some() && done.step == 1);
    // Nothing to divide by, of the whole step: the first micro-step alone may have none.
    let none = weighted(&[0.0; 10], Normalize::Weights);
    assert_eq!(block_on(trainer.step_by(&text, &none)).unwrap().loss, 0.0);
    refused(&none, "nothing to divide by");
    for weight in [1e-44, 1e38] {
        refused(&weighted(&[weight; 10], Normalize::Weights), "add up to");
    }
    let done = block_on(trainer.step_by(&text, &weighted(&ones, Normalize::Weights))).unwrap();
    assert!(!done.skipped && done.loss.is_finite());
}

#[test]
fn soft_targets_that_cannot_be_are_refused() {
    let pair = Pair::new(&Double::floor(), TIED);
    let trainer = trainer(&pair, 1, options());
    let text = part(&documents(9), 0..10);
    let good = SoftTargets {
        ids: [3, 5].repeat(10),
        probabilities: [0.5, 0.25].repeat(10),
        reverse: false,
        renormalized: false,
        share: 0.5,
        temperature: 1.0,
    };
    let refused = |change: &dyn Fn(&mut SoftTargets), needle: &str| {
        let mut soft = good.clone();
        change(&mut soft);
        let objective = StepObjective { soft: Some(soft), ..StepObjective::default() };
        let message = block_on(trainer.step_by(&text, &objective)).unwrap_err().message;
        assert!(message.contains(needle), "{message}");
    };
    refused(&|soft| soft.share = 1.5, "soft.share");
    refused(&|soft| soft.temperature = 0.0, "soft.temperature");
    refused(&|soft| soft.ids.truncate(19), "soft.probabilities has 20");
    refused(&|soft| soft.ids[4] = 61, "position 2 has 61");
    refused(&|soft| soft.ids[4] = 5, "position 2 has 5 twice");
    refused(&|soft| soft.probabilities[4] = -0.1, "position 2 has -0.1000");
    refused(&|soft| soft.probabilities[4] = 0.9, "add up to");
    let (ids, probabilities) = (vec![0; 650], vec![0.0; 650]);
    refused(
        &|soft| (soft.ids, soft.probabilities) = (ids.clone(), probabilities.clone()),
        "soft.ids has 650",
    );
}

/// Under mixed precision, recomputation and an adapter: weights of 2 over a number twice as large are no weights.
#[test]
fn weights_hold_in_all_trainers() {
    let text = part(&documents(11), 0..20);
    let doubled = weighted(&[2.0; 20], Normalize::Number(40.0));
    let forms = [
        TrainerOptions { recompute: true, ..options() },
        TrainerOptions { precision: Precision::Mixed, ..options() },
        TrainerOptions { last_layers: Some(1), ..options() },
    ];
    for form in forms {
        let of = |objective: Option<&StepObjective>| {
            let pair = Pair::new(&named("NVIDIA"), UNTIED);
            let trainer = trainer(&pair, 1, form.clone());
            let loss = match objective {
                Some(objective) => block_on(trainer.step_by(&text, objective)),
                None => block_on(trainer.step(&text)),
            };
            (loss.unwrap().loss, gradients(&trainer))
        };
        let (plain, steered) = (of(None), of(Some(&doubled)));
        assert!((plain.0 - steered.0).abs() < 1e-6, "{} and {}", plain.0, steered.0);
        let error = apart(&steered.1, &plain.1);
        assert!(error < 1e-3, "{error}");
    }
    let of = |objective: Option<&StepObjective>| {
        let pair = Pair::new(&Double::floor(), UNTIED);
        let adapter = block_on(Adapter::create(&pair.model, lora(&ALL, 4), NO_PROGRESS)).unwrap();
        let options = TrainerOptions { gradient_accumulation: 1, ..options() };
        let trainer = block_on(Trainer::create(adapter.model(), options, NO_PROGRESS)).unwrap();
        let loss = match objective {
            Some(objective) => block_on(trainer.step_by(&text, objective)),
            None => block_on(trainer.step(&text)),
        };
        (loss.unwrap().loss, gradients(&trainer))
    };
    let (plain, steered) = (of(None), of(Some(&doubled)));
    assert!((plain.0 - steered.0).abs() < 1e-6);
    assert!(apart(&steered.1, &plain.1) < 1e-6);
}

/// In the middle of an accumulation that is divided by weights.
#[test]
fn a_resumed_accumulation_goes_on_to_the_bit() {
    let (whole, all) = (documents(13), weights(30));
    let pair = Pair::new(&Double::floor(), TIED);
    let one = trainer(&pair, 2, options());
    let (first, second) = (part(&whole, 0..10), part(&whole, 10..30));
    block_on(one.step_by(&first, &weighted(&all[..10], Normalize::Weights))).unwrap();
    let (_model, again) = reloaded(&pair.model, &one);
    let last = weighted(&all[10..], Normalize::Weights);
    let [own, other] = [&one, &again].map(|trainer| {
        let metrics = block_on(trainer.step_by(&second, &last)).unwrap();
        (metrics.loss.to_bits(), metrics.grad_norm.unwrap().to_bits(), gradients(trainer))
    });
    assert_eq!(own, other);
    let error = block_on(again.step_by(&first, &weighted(&all[..10], Normalize::Targets)));
    error.unwrap();
}

/// Against the log-softmax of logits, in f64: of packed documents, at temperatures, with entropy and likeliest tokens.
#[test]
fn scores_are_those_of_the_logits() {
    for config in [TIED, NORMED] {
        let pair = Pair::new(&Double::floor(), config);
        let mut text = batch(&pair.config, 3, 40);
        text.targets[7] = IGNORE_INDEX;
        let mut logits = vec![];
        let starts: Vec<usize> = (0..40).filter(|i| text.documents[*i] as usize == *i).collect();
        for (i, &start) in starts.iter().enumerate() {
            let end = starts.get(i + 1).copied().unwrap_or(40);
            let own = &text.tokens[start..end];
            logits
                .extend(block_on(pair.model.logits(own, Default::default(), NO_PROGRESS)).unwrap());
        }
        assert!(starts.len() > 2);
        let vocabulary = pair.config.vocab_size;
        for (temperature, top, entropy) in
            [(1.0, 0, false), (1.0, 5, true), (0.7, 64.min(vocabulary), false)]
        {
            let options = ScoreOptions { temperature, top, entropy, ..ScoreOptions::default() };
            let Batch { tokens, targets, documents } = text.clone();
            let score =
                pair.model.score(tokens, Some(targets), Some(documents), options, NO_PROGRESS);
            let scores = block_on(score).unwrap();
            assert_eq!(scores.logprobs.len(), 40);
            assert_eq!((scores.ids.len(), scores.probabilities.len()), (40 * top, 40 * top));
            assert_eq!(scores.entropy.len(), if entropy { 40 } else { 0 });
            for (row, logits) in logits.chunks(vocabulary).enumerate() {
                let logits: Vec<f64> = logits.iter().map(|x| f64::from(*x) / temperature).collect();
                let all = log_sum_exp(&logits);
                let wanted = match text.targets[row] {
                    IGNORE_INDEX => 0.0,
                    target => logits[target as usize] - all,
                };
                assert!((f64::from(scores.logprobs[row]) - wanted).abs() < 1e-5, "row {row}");
                if entropy {
                    let own: f64 = logits.iter().map(|x| (x - all).exp() * (all - x)).sum();
                    assert!((f64::from(scores.entropy[row]) - own).abs() < 1e-5, "row {row}");
                }
                let mut order: Vec<usize> = (0..vocabulary).collect();
                order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
                for (place, &id) in order[..top].iter().enumerate() {
                    let at = row * top + place;
                    assert_eq!(scores.ids[at] as usize, id, "row {row}");
                    let own = (logits[id] - all).exp();
                    assert!((f64::from(scores.probabilities[at]) - own).abs() < 1e-5);
                }
            }
        }
    }
}

/// Targets by default are the next tokens of each document.
#[test]
fn scores_are_the_losses_and_what_cannot_be_is_refused() {
    let double = Double::floor();
    let pair = Pair::new(&double, NORMED);
    let tokens = integers(29, 30, 61);
    let plain = Default::default();
    let dispatches = || double.counters().dispatches;
    let begun = dispatches();
    let scores =
        block_on(pair.model.score(tokens.clone(), None, None, plain, NO_PROGRESS)).unwrap();
    let scored = dispatches();
    let loss = block_on(pair.model.loss(&tokens, None, Default::default(), NO_PROGRESS));
    assert_eq!(scored - begun, dispatches() - scored, "scores cost what losses cost");
    let sum: f64 = scores.logprobs.iter().map(|x| f64::from(*x)).sum();
    assert_eq!(-sum / 29.0, loss.unwrap());
    assert_eq!(scores.logprobs[29], 0.0);
    for options in [
        ScoreOptions { top: 65, ..Default::default() },
        ScoreOptions { temperature: 0.0, ..Default::default() },
    ] {
        let score = pair.model.score(tokens.clone(), None, None, options, NO_PROGRESS);
        assert_eq!(block_on(score).unwrap_err().code, ErrorCode::InvalidOptions);
    }
}

/// A function that computes the cross-entropy on the CPU makes the step that the kernel makes: with a cap of logits, in
/// an accumulation, with documents; its failure leaves the trainer as it was.
#[test]
fn a_gradient_function_of_the_cross_entropy_is_a_step() {
    for config in [TIED, ALTERNATING] {
        let texts = [documents(17), part(&documents(19), 0..20)];
        let [plain, given] = [(); 2].map(|()| {
            let pair = Pair::new(&Double::floor(), config);
            trainer(&pair, 2, options())
        });
        let vocabulary = plain.model().config().vocab_size;
        let called = Cell::new(0);
        let mut last = vec![];
        for text in &texts {
            let wanted = block_on(
                plain.step_by(text, &weighted(&[2.0; 30][..text.len()], Normalize::Number(30.0))),
            );
            let gradient = |given: GivenRows| -> LocalFuture<_> {
                called.set(called.get() + 1);
                let GivenRows { first, values: logits, .. } = given;
                let rows = first..first + logits.len() / vocabulary;
                let mut wide: Vec<f64> = logits.iter().map(|x| f64::from(*x)).collect();
                let targets = &text.targets[rows];
                let losses = cross_entropy_backward(&mut wide, targets, vocabulary, 2.0);
                let slopes = GivenGradient::Numbers(wide.iter().map(|x| *x as f32).collect());
                Box::pin(async move { Ok((slopes, 2.0 * losses.iter().sum::<f64>())) })
            };
            let Batch { tokens, documents, .. } = text.clone();
            let fails = |_: GivenRows| -> LocalFuture<_> {
                Box::pin(async { Err(Error::options("the function fails")) })
            };
            let by = GradientBy::Logits;
            let (ids, starts) = (tokens.clone(), Some(documents.clone()));
            let refused = given.step_given(ids, starts, 30.0, (by, &fails));
            assert_eq!(block_on(refused).unwrap_err().message, "the function fails");
            let got =
                block_on(given.step_given(tokens, Some(documents), 30.0, (by, &gradient))).unwrap();
            let wanted = wanted.unwrap();
            assert!((got.loss - wanted.loss).abs() < 1e-5, "{} for {}", got.loss, wanted.loss);
            last = vec![got.grad_norm, wanted.grad_norm];
        }
        assert_eq!(called.get(), 2);
        let norms: Vec<f64> = last.into_iter().flatten().collect();
        assert!((norms[0] / norms[1] - 1.0).abs() < 1e-5, "{norms:?}");
        assert!(apart(&gradients(&given), &gradients(&plain)) < 1e-5);
        assert_eq!((plain.steps(), given.steps()), (1, 1));
        block_on(given.step_by(&texts[1], &StepObjective::default())).unwrap();
    }
}
