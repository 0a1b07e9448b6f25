//! Every optimizer on the double: its update held to the twin, its state counted, saved and resumed.

use super::Double;
use super::lora_tests::{fill_from, lora, resumed};
use super::plan_tests::step_options;
use super::session_tests::{file_of, options, reloaded, steps};
use super::tests::{BIASED, NORMED, Pair, TIED, UNTIED, batch, integers, weights};
use crate::data::Batch;
use crate::gpu::Gpu;
use crate::optim::{Numbers, Optimizer, RULES, Rule, State};
use crate::session::{
    Adapter, EstimateOptions, Model, NO_PROGRESS, Snapshot, Trainer, TrainerOptions, estimate,
};
use crate::twins::adamw_forward;
use crate::twins::adamw8bit_forward;
use crate::twins::lion_forward;
use crate::twins::sgd_forward;
use crate::twins::smoothed_cross_entropy_backward;
use crate::twins::{Decision, average_forward};
use crate::twins::{muon_forward, muon_orthogonal, muon_update_forward};
use pollster::block_on;
use std::rc::Rc;

/// Matrices large enough for codes, with others that are not among those fused with them.
const CODED: &str = r#"{"vocab_size":61,"hidden_size":64,"intermediate_size":128,
    "num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"head_dim":32,
    "initializer_range":0.2,"max_position_embeddings":512}"#;

/// The model for tests of an optimizer: one that reaches all kinds of its state, which may depend on sizes.
fn model_of(options: &TrainerOptions, else_one: &'static str) -> &'static str {
    if options.optimizer.name == "adamw8bit" { CODED } else { else_one }
}

fn of(name: &str) -> TrainerOptions {
    let optimizer = Rule::named(name).unwrap();
    TrainerOptions { optimizer, learning_rate: optimizer.learning_rate.max(3e-3), ..options() }
}

/// Gradient descent without a velocity.
fn no_velocity() -> TrainerOptions {
    TrainerOptions { numbers: Numbers::from_iter([("momentum", 0.0)]), ..of("sgd") }
}

/// Each rule, and gradient descent without a velocity.
fn all() -> impl Iterator<Item = TrainerOptions> {
    RULES.iter().map(|rule| of(rule.name)).chain([no_velocity()])
}

/// The rules whose state is laid out as the gradients are, with its sets.
fn plain() -> impl Iterator<Item = (TrainerOptions, u64)> {
    all().filter_map(|options| match options.optimizer.state {
        State::AsGradients(sets) => {
            let optimizer = Optimizer::new(options.optimizer, &options.numbers);
            Some((options, sets(&optimizer).len() as u64))
        }
        State::PerTensor(_) => None,
    })
}

fn trainer(model: &Rc<Model>, options: TrainerOptions) -> Rc<Trainer> {
    block_on(Trainer::create(model, options, NO_PROGRESS)).unwrap()
}

/// All bytes of the state.
fn state(trainer: &Trainer) -> Vec<u8> {
    let read = |index| block_on(trainer.read_optimizer_tensor(index, None)).unwrap();
    (0..trainer.optimizer_tensors().len()).flat_map(read).collect()
}

/// A step of two micro-steps, given the gradients that the device had.
fn held_to_the_twin(config: &str, options: TrainerOptions) {
    let pair = Pair::new(&Double::floor(), config);
    let options = TrainerOptions { max_grad_norm: Some(0.05), ..options };
    let trainer = trainer(&pair.model, options.clone());
    block_on(trainer.step(&batch(&pair.config, 3, 32))).unwrap();
    let metrics = block_on(trainer.step(&batch(&pair.config, 5, 23))).unwrap();
    let norm = metrics.grad_norm.unwrap();
    let of = step_options(metrics.learning_rate, &options);
    let factor = 0.05 / (norm + 1e-6);
    let decision = Decision { norm, update: true, factor, carried: [0.0; 2] };
    let mut moved = 0.0;
    for (index, (name, shape)) in pair.model.tensors().iter().enumerate() {
        let mut x = pair.weights[name].clone();
        let gradient = block_on(trainer.read_gradient(index)).unwrap();
        let g: Vec<f64> = gradient.into_iter().map(f64::from).collect();
        let (mut m, decay) = (vec![0.0; x.len()], shape.len() > 1);
        if options.optimizer.name == "lion" {
            lion_forward(&mut x, &g, &mut m, &of, &decision, decay);
        } else {
            let velocity = options.numbers.get("momentum").is_none().then_some(&mut m[..]);
            sgd_forward(&mut x, &g, velocity, &of, &decision, decay);
        }
        let bytes = block_on(pair.model.read_tensor(index)).unwrap();
        let got: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes);
        for (i, (&got, &x)) in got.iter().zip(&x).enumerate() {
            let tolerance = 1.2e-7 * x.abs() + 1e-4 * of.learning_rate;
            let error = (f64::from(got) - x).abs();
            assert!(error <= tolerance, "{name}[{i}]: got {got}, expected {x}, error {error:e}");
            moved += (x - pair.weights[name][i]).abs();
        }
    }
    assert!(moved > 0.0);
}

#[test]
fn a_step_is_the_twins() {
    for config in [TIED, UNTIED, BIASED] {
        for options in [of("lion"), of("sgd"), no_velocity()] {
            held_to_the_twin(config, options);
        }
    }
}

#[test]
fn the_loss_falls_with_each() {
    for options in all() {
        let pair = Pair::new(&Double::floor(), model_of(&options, TIED));
        let name = options.optimizer.name;
        let losses = steps(&trainer(&pair.model, options), 12);
        assert!(losses[11] < 0.95 * losses[0], "{name}: {losses:?}");
    }
}

/// With all layers and the last alone.
#[test]
fn an_estimate_counts_the_state_that_is_allocated() {
    let double = Double::floor();
    for (options, per_weight) in plain() {
        for last_layers in [None, Some(1)] {
            let pair = Pair::new(&double, UNTIED);
            let options = TrainerOptions { last_layers, ..options.clone() };
            let name = format!("{} of {last_layers:?}", options.optimizer.name);
            let asked = EstimateOptions { trainer: Some(options.clone()), ..Default::default() };
            let estimated = estimate(&pair.config, &asked, Some(double.capabilities())).unwrap();
            let trainer = trainer(&pair.model, options);
            assert_eq!(pair.model.gpu_bytes(), estimated.bytes.total(), "{name}");
            let bytes = per_weight * trainer.layout().bytes();
            assert!((bytes..bytes + 256).contains(&estimated.bytes.state), "{name}");
            drop(trainer);
            pair.model.free();
        }
    }
}

/// Codes take at most 2.1 bytes per weight, small tensors 8.
#[test]
fn codes_take_what_is_estimated() {
    for (config, coded_share) in [(CODED, 0.8), (UNTIED, 0.0)] {
        let double = Double::floor();
        let pair = Pair::new(&double, config);
        let asked = EstimateOptions { trainer: Some(of("adamw8bit")), ..Default::default() };
        let estimated = estimate(&pair.config, &asked, Some(double.capabilities())).unwrap();
        let trainer = trainer(&pair.model, of("adamw8bit"));
        assert_eq!(pair.model.gpu_bytes(), estimated.bytes.total());
        let count = |shape: &[usize]| shape.iter().product::<usize>() as u64;
        let coded = |shape: &[usize]| count(shape) >= 4096 && count(shape).is_multiple_of(256);
        let tensors = &trainer.layout().tensors;
        let sum = |coded_ones: bool| -> u64 {
            let own = tensors.iter().filter(|tensor| coded(&tensor.shape) == coded_ones);
            own.map(|tensor| count(&tensor.shape)).sum()
        };
        let bytes = 2 * sum(true) + sum(true) / 32 + 8 * sum(false);
        assert!((bytes..bytes + 80).contains(&estimated.bytes.state), "{}", estimated.bytes.state);
        assert!(sum(true) as f64 >= coded_share * (sum(true) + sum(false)) as f64, "{tensors:?}");
        let names = trainer.optimizer_tensors();
        let scales = names.iter().filter(|(name, _)| name.ends_with(".scales")).count();
        assert_eq!(scales, tensors.iter().filter(|tensor| coded(&tensor.shape)).count());
        assert_eq!(names.len(), 2 * tensors.len() + scales);
    }
}

/// With both kinds of state, by the gradients that the device had.
#[test]
fn a_step_of_codes_is_the_twins() {
    let pair = Pair::new(&Double::floor(), CODED);
    let options = TrainerOptions { gradient_accumulation: 1, ..of("adamw8bit") };
    let trainer = trainer(&pair.model, options);
    let mut kept: Vec<_> = pair
        .model
        .tensors()
        .iter()
        .map(|(name, shape)| {
            let count = shape.iter().product::<usize>();
            (
                pair.weights[name].clone(),
                vec![0u8; count],
                vec![0u8; count],
                vec![0.0f64; count.div_ceil(128)],
                [vec![0.0f64; count], vec![0.0; count]],
            )
        })
        .collect();
    let mut carried = [0.0; 2];
    for seed in [3, 5, 7] {
        let metrics = block_on(trainer.step(&batch(&pair.config, seed, 32))).unwrap();
        let norm = metrics.grad_norm.unwrap();
        carried = [carried[0] * 0.9 + 0.1, carried[1] * 0.95 + 0.05];
        let of = step_options(metrics.learning_rate, &of("adamw8bit"));
        let factor = (1.0 / (norm + 1e-6)).min(1.0);
        let decision = Decision { norm, update: true, factor, carried };
        for (index, (name, shape)) in pair.model.tensors().iter().enumerate() {
            let (x, c1, c2, scales, [m, v]) = &mut kept[index];
            let gradient = block_on(trainer.read_gradient(index)).unwrap();
            let g: Vec<f64> = gradient.into_iter().map(f64::from).collect();
            if x.len() >= 4096 && x.len().is_multiple_of(256) {
                let both = [&mut c1[..], &mut c2[..]];
                let decayed = x.len();
                adamw8bit_forward(x, &g, both, scales, &of, &decision, decayed);
            } else {
                let decay = shape.len() > 1;
                adamw_forward(x, &g, [m, v], &of, &decision, decay);
            }
            let bytes = block_on(pair.model.read_tensor(index)).unwrap();
            let got: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes);
            // A value half way between two codes may have either, and steps on by either.
            let far = got.iter().zip(x.iter()).filter(|(got, x)| {
                (f64::from(**got) - **x).abs() > 1.2e-7 * x.abs() + 1e-3 * of.learning_rate
            });
            let far = far.count();
            assert!(far <= x.len() / 1000, "{name}: {far} of {} after seed {seed}", x.len());
        }
    }
}

/// Whether a tensor is a matrix of a layer.
fn of_layer(name: &str, shape: &[usize]) -> bool {
    shape.len() == 2 && (name.contains(".layers.") || name.contains(".h."))
}

/// The first step, of matrices and of the rest, by the gradients that the device had.
#[test]
fn a_step_of_muon_is_the_twins() {
    for config in [TIED, UNTIED, BIASED, NORMED] {
        let pair = Pair::new(&Double::floor(), config);
        let options =
            TrainerOptions { gradient_accumulation: 1, max_grad_norm: Some(0.05), ..of("muon") };
        let trainer = trainer(&pair.model, options.clone());
        let metrics = block_on(trainer.step(&batch(&pair.config, 5, 32))).unwrap();
        let norm = metrics.grad_norm.unwrap();
        let (factor, carried) = (0.05 / (norm + 1e-6), [0.1, 0.05]);
        let decision = Decision { norm, update: true, factor, carried };
        let of = step_options(metrics.learning_rate, &options);
        let mut matrices = 0;
        for (index, (name, shape)) in pair.model.tensors().iter().enumerate() {
            let mut x = pair.weights[name].clone();
            let gradient = block_on(trainer.read_gradient(index)).unwrap();
            let g: Vec<f64> = gradient.into_iter().map(f64::from).collect();
            let (mut m, mut v) = (vec![0.0; x.len()], vec![0.0; x.len()]);
            if of_layer(name, shape) {
                matrices += 1;
                let ahead = muon_forward(&g, &mut m, 0.95, &decision).unwrap();
                let along = muon_orthogonal(&ahead, [shape[0], shape[1]]);
                let rate = 0.2 * (shape[0].max(shape[1]) as f64).sqrt();
                muon_update_forward(&mut x, &along, rate, &of, &decision, true);
            } else {
                let decays = shape.len() > 1;
                adamw_forward(&mut x, &g, [&mut m, &mut v], &of, &decision, decays);
            }
            let bytes = block_on(pair.model.read_tensor(index)).unwrap();
            let got: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes);
            for (i, (&got, &x)) in got.iter().zip(&x).enumerate() {
                let tolerance = 1.2e-7 * x.abs() + 1e-3 * of.learning_rate;
                let error = (f64::from(got) - x).abs();
                assert!(error <= tolerance, "{name}[{i}]: {got} for {x}, error {error:e}");
            }
        }
        assert!(matrices >= 8, "{matrices} matrices");
    }
}

/// A matrix of a layer has one moment, all else two.
#[test]
fn muon_takes_what_is_estimated() {
    let double = Double::floor();
    let pair = Pair::new(&double, UNTIED);
    let asked = EstimateOptions { trainer: Some(of("muon")), ..Default::default() };
    let estimated = estimate(&pair.config, &asked, Some(double.capabilities())).unwrap();
    let trainer = trainer(&pair.model, of("muon"));
    assert_eq!(pair.model.gpu_bytes(), estimated.bytes.total());
    let bytes = |(name, shape): &(String, Vec<usize>)| {
        let moments = if of_layer(name, shape) { 1 } else { 2 };
        4 * moments * shape.iter().product::<usize>() as u64
    };
    let wanted: u64 = pair.model.tensors().iter().map(bytes).sum();
    assert!((wanted..wanted + 80).contains(&estimated.bytes.state), "{}", estimated.bytes.state);
    let names = trainer.optimizer_tensors();
    let of_layers = pair.model.tensors().iter().filter(|(n, s)| of_layer(n, s)).count();
    let buffers = names.iter().filter(|(name, _)| name.ends_with(".momentum_buffer")).count();
    assert_eq!(buffers, of_layers);
    assert_eq!(names.len(), 2 * pair.model.tensors().len() - of_layers);
}

/// Between two steps and in the middle of an accumulation, of all layers and of the last.
#[test]
fn a_resumed_run_goes_on_to_the_bit() {
    for options in all() {
        for last_layers in [None, Some(1)] {
            let options = TrainerOptions { last_layers, ..options.clone() };
            let run = |cut: bool| {
                let pair = Pair::new(&Double::floor(), model_of(&options, NORMED));
                let first = trainer(&pair.model, options.clone());
                let mut losses = steps(&first, 2);
                block_on(first.step(&batch(&pair.config, 3, 20))).unwrap();
                let (model, second) = if cut {
                    reloaded(&pair.model, &first)
                } else {
                    (Rc::clone(&pair.model), first)
                };
                block_on(second.step(&batch(&pair.config, 7, 31))).unwrap();
                let (model, second) = if cut { reloaded(&model, &second) } else { (model, second) };
                losses.extend(steps(&second, 2));
                (losses, weights(&model), state(&second), second.options())
            };
            assert!(run(true) == run(false), "{options:?}");
        }
    }
}

#[test]
fn an_adapters_run_goes_on_to_the_bit() {
    for options in all() {
        let config = model_of(&options, UNTIED);
        // With rank 64 A is large enough for codes.
        let rank = if options.optimizer.name == "adamw8bit" { 64 } else { 4 };
        let create = |pair: &Pair| {
            let adapter =
                Adapter::create(&pair.model, lora(&["q_proj", "down_proj"], rank), NO_PROGRESS);
            block_on(adapter).unwrap()
        };
        let pair = Pair::new(&Double::floor(), config);
        let base = weights(&pair.model);
        let whole = create(&pair);
        let expected = steps(&trainer(whole.model(), options.clone()), 4);
        assert!(expected[3] < expected[0], "{expected:?}");
        let first = create(&pair);
        let trainer = trainer(first.model(), options);
        let before = steps(&trainer, 2);
        let elsewhere = Pair::new(&Double::floor(), config);
        let second = create(&elsewhere);
        fill_from(&second, &first);
        let resumed = block_on(resumed(&trainer, &second)).unwrap();
        assert_eq!([before, steps(&resumed, 2)].concat(), expected);
        assert!(weights(second.model()) == weights(whole.model()));
        assert!(weights(&pair.model) == base);
    }
}

#[test]
fn a_snapshot_is_what_a_save_gives() {
    for options in all() {
        let pair = Pair::new(&Double::floor(), model_of(&options, NORMED));
        let trainer = trainer(&pair.model, options);
        steps(&trainer, 2);
        let saved = [trainer.save_header(), state(&trainer)];
        let bytes = saved[1].len() as u64;
        let numbers = block_on(trainer.state()).unwrap();
        let taken = Snapshot::of_trainer(&trainer).unwrap().expect("between steps");
        steps(&trainer, 1);
        let snapshot = block_on(taken).unwrap();
        for piece in [4, 1000, 1 << 20] {
            assert!(file_of(&snapshot, bytes, piece) == saved.concat(), "by {piece}");
        }
        assert_eq!(block_on(snapshot.state()).unwrap(), numbers);
    }
}

/// Neither a step whose norm is not finite nor a profile changes weights or state.
#[test]
fn what_is_no_update_changes_nothing() {
    for options in all() {
        let pair = Pair::new(&Double::floor(), model_of(&options, UNTIED));
        let trainer = trainer(&pair.model, options);
        steps(&trainer, 2);
        let held = || (weights(&pair.model), state(&trainer));
        let before = held();
        block_on(trainer.profile(NO_PROGRESS)).unwrap();
        assert!(held() == before, "after a profile");
        // Weights so large that the logits overflow.
        trainer.set_learning_rate(1e30).unwrap();
        steps(&trainer, 1);
        let before = held();
        let batch = batch(&pair.config, 3, 20);
        block_on(trainer.step(&batch)).unwrap();
        assert!(block_on(trainer.step(&batch)).unwrap().skipped);
        assert!(held() == before, "after a skipped step");
    }
}

/// Averages of all that is trained, between steps, over a skipped step, and through a save in the middle.
#[test]
fn an_average_follows_and_changes_places_to_the_bit() {
    for last_layers in [None, Some(1)] {
        let options = TrainerOptions { last_layers, ema: Some(0.75), ..of("adamw") };
        let pair = Pair::new(&Double::floor(), NORMED);
        let first = trainer(&pair.model, options.clone());
        let numbers = |model: &Rc<Model>| -> Vec<f64> {
            let read = |index| block_on(model.read_tensor(index)).unwrap();
            let bytes: Vec<u8> = (0..model.tensors().len()).flat_map(read).collect();
            let numbers: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes);
            numbers.into_iter().map(f64::from).collect()
        };
        let averages = |trainer: &Trainer| {
            let before = (weights(trainer.model()), state(trainer));
            block_on(trainer.exchange_averages()).unwrap();
            assert!(Snapshot::of_trainer(trainer).unwrap().is_none());
            let found = numbers(trainer.model());
            block_on(trainer.exchange_averages()).unwrap();
            assert!((weights(trainer.model()), state(trainer)) == before);
            found
        };
        let mut wanted = numbers(&pair.model);
        assert!(averages(&first) == wanted);
        for _ in 0..3 {
            steps(&first, 1);
            average_forward(&numbers(&pair.model), &mut wanted, 0.25, true);
        }
        let found = averages(&first);
        let error = found.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(error < 1e-6 && found != numbers(&pair.model), "{error}");
        block_on(first.profile(NO_PROGRESS)).unwrap();
        assert!(averages(&first) == found, "after a profile");
        let (model, second) = reloaded(&pair.model, &first);
        assert!(averages(&second) == found, "after a resume");
        assert!(steps(&first, 2) == steps(&second, 2));
        assert!(averages(&first) == averages(&second) && weights(&model) == weights(&pair.model));
    }
    let pair = Pair::new(&Double::floor(), TIED);
    let plain = trainer(&pair.model, of("adamw"));
    let refused = block_on(plain.exchange_averages()).unwrap_err();
    assert!(refused.message.contains("ema"), "{refused}");
}

/// A step reports the objective, whose gradients it takes; what evaluates gives the cross-entropy alone.
#[test]
fn label_smoothing_and_z_loss_are_in_a_steps_loss_alone() {
    let pair = Pair::new(&Double::floor(), NORMED);
    let text = Batch::next_tokens(integers(23, 20, 61));
    let logits =
        block_on(pair.model.logits(&text.tokens, Default::default(), NO_PROGRESS)).unwrap();
    let logits: Vec<f64> = logits.into_iter().map(f64::from).collect();
    let counted = text.counted() as f64;
    let reported = |label_smoothing, z_loss| {
        let options = TrainerOptions {
            label_smoothing,
            z_loss,
            gradient_accumulation: 1,
            learning_rate: 1e-30,
            ..options()
        };
        let trainer = trainer(&pair.model, options);
        let metrics = block_on(trainer.step(&text)).unwrap();
        (metrics.loss, metrics.grad_norm.unwrap())
    };
    let mut seen = vec![];
    for more in [[0.0, 0.0], [0.3, 0.0], [0.0, 0.1], [0.3, 0.1]] {
        let own = &mut logits.clone();
        let losses = smoothed_cross_entropy_backward(own, &text.targets, 61, 1.0, more);
        let wanted = losses.iter().sum::<f64>() / counted;
        let (loss, norm) = reported(more[0], more[1]);
        assert!((loss - wanted).abs() <= 2e-5 * wanted, "{more:?}: {loss} for {wanted}");
        seen.push((loss, norm));
        let plain = block_on(pair.model.loss(&text.tokens, None, Default::default(), NO_PROGRESS));
        let apart = (plain.unwrap() - seen[0].0).abs();
        assert!(apart <= 1e-5, "an evaluation is {apart} from the cross-entropy");
    }
    for (i, one) in seen.iter().enumerate() {
        for other in &seen[..i] {
            assert!((one.0 - other.0).abs() > 1e-3 && (one.1 - other.1).abs() > 1e-4, "{seen:?}");
        }
    }
}
