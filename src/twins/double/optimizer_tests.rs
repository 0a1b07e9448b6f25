//! Every optimizer on the double: its update held to the twin, its state counted, saved and resumed.

use super::Double;
use super::adapter_tests::{fill, lora, resumed};
use super::session_tests::{file_of, options, reloaded, steps};
use super::tests::{BIASED, NORMED, Pair, TIED, UNTIED, batch, integers, weights};
use crate::data::Batch;
use crate::gpu::Gpu;
use crate::optim::OptimizerKind::{self, AdamW, Lion, Sgd};
use crate::session::{
    Adapter, EstimateOptions, Model, Snapshot, Trainer, TrainerOptions, UNWATCHED, estimate,
};
use crate::twins::loss::smoothed_cross_entropy_backward;
use crate::twins::optimizer::{Decision, OptimizerOptions, lion_forward, sgd_forward};
use pollster::block_on;
use std::rc::Rc;

fn of(optimizer: OptimizerKind) -> TrainerOptions {
    let learning_rate = if optimizer == Sgd { 0.1 } else { 3e-3 };
    TrainerOptions { optimizer, learning_rate, ..options() }
}

/// Each optimizer, and gradient descent without a velocity, with the f32 numbers of state per weight.
fn all() -> [(TrainerOptions, u64); 4] {
    let plain = TrainerOptions { momentum: Some(0.0), ..of(Sgd) };
    [(of(AdamW), 2), (of(Lion), 1), (of(Sgd), 1), (plain, 0)]
}

fn trainer(model: &Rc<Model>, options: TrainerOptions) -> Rc<Trainer> {
    block_on(Trainer::create(model, options, UNWATCHED)).unwrap()
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
    let numbers = options.optimizer.numbers();
    let momentum = options.momentum.or(numbers.momentum);
    block_on(trainer.step(&batch(&pair.config, 3, 32))).unwrap();
    let metrics = block_on(trainer.step(&batch(&pair.config, 5, 23))).unwrap();
    let norm = metrics.grad_norm.unwrap();
    let of = OptimizerOptions {
        learning_rate: metrics.learning_rate,
        beta1: numbers.beta1.or(momentum).unwrap(),
        beta2: numbers.beta2.unwrap_or(0.0),
        epsilon: 0.0,
        weight_decay: options.weight_decay,
        max_grad_norm: f64::INFINITY,
        gradient_scale: 1.0,
    };
    let decision = Decision { norm, update: true, factor: 0.05 / (norm + 1e-6) };
    let mut moved = 0.0;
    for (index, (name, shape)) in pair.model.tensors().iter().enumerate() {
        let mut x = pair.weights[name].clone();
        let gradient = block_on(trainer.read_gradient(index)).unwrap();
        let g: Vec<f64> = gradient.into_iter().map(f64::from).collect();
        let (mut m, decay) = (vec![0.0; x.len()], shape.len() > 1);
        match options.optimizer {
            Lion => lion_forward(&mut x, &g, &mut m, &of, decision, decay),
            _ => {
                let velocity = (momentum != Some(0.0)).then_some(&mut m[..]);
                sgd_forward(&mut x, &g, velocity, &of, decision, decay);
            }
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
        for (options, _) in &all()[1..] {
            held_to_the_twin(config, options.clone());
        }
    }
}

#[test]
fn the_loss_falls_with_each() {
    for (options, _) in all() {
        let pair = Pair::new(&Double::floor(), TIED);
        let name = options.optimizer.name();
        let losses = steps(&trainer(&pair.model, options), 12);
        assert!(losses[11] < 0.95 * losses[0], "{name}: {losses:?}");
    }
}

/// With all layers and the last alone.
#[test]
fn an_estimate_counts_the_state_that_is_allocated() {
    let double = Double::floor();
    for (options, per_weight) in all() {
        for last_layers in [None, Some(1)] {
            let pair = Pair::new(&double, UNTIED);
            let options = TrainerOptions { last_layers, ..options.clone() };
            let name = format!("{} of {last_layers:?}", options.optimizer.name());
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

/// Between two steps and in the middle of an accumulation, of all layers and of the last.
#[test]
fn a_resumed_run_goes_on_to_the_bit() {
    for (options, _) in all() {
        for last_layers in [None, Some(1)] {
            let options = TrainerOptions { last_layers, ..options.clone() };
            let run = |cut: bool| {
                let pair = Pair::new(&Double::floor(), NORMED);
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
    for (options, _) in all() {
        let create = |pair: &Pair| {
            let adapter =
                Adapter::create(&pair.model, lora(&["q_proj", "down_proj"], 4), UNWATCHED);
            block_on(adapter).unwrap()
        };
        let pair = Pair::new(&Double::floor(), UNTIED);
        let base = weights(&pair.model);
        let whole = create(&pair);
        let expected = steps(&trainer(whole.model(), options.clone()), 4);
        assert!(expected[3] < expected[0], "{expected:?}");
        let first = create(&pair);
        let trainer = trainer(first.model(), options);
        let before = steps(&trainer, 2);
        let elsewhere = Pair::new(&Double::floor(), UNTIED);
        let second = create(&elsewhere);
        let tensors = first.model().tensors();
        fill(&second, |name| {
            let index = tensors.iter().position(|(own, _)| own == name).unwrap();
            block_on(first.model().read_tensor(index)).unwrap()
        });
        let resumed = block_on(resumed(&trainer, &second)).unwrap();
        assert_eq!([before, steps(&resumed, 2)].concat(), expected);
        assert!(weights(second.model()) == weights(whole.model()));
        assert!(weights(&pair.model) == base);
    }
}

#[test]
fn a_snapshot_is_what_a_save_gives() {
    for (options, _) in all() {
        let pair = Pair::new(&Double::floor(), NORMED);
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
    for (options, _) in all() {
        let pair = Pair::new(&Double::floor(), UNTIED);
        let trainer = trainer(&pair.model, options);
        steps(&trainer, 2);
        let held = || (weights(&pair.model), state(&trainer));
        let before = held();
        block_on(trainer.profile(UNWATCHED)).unwrap();
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

/// A step reports the objective, whose gradients it takes; what evaluates gives the cross-entropy alone.
#[test]
fn label_smoothing_and_z_loss_are_in_a_steps_loss_alone() {
    let pair = Pair::new(&Double::floor(), NORMED);
    let text = Batch::next_tokens(integers(23, 20, 61));
    let logits = block_on(pair.model.logits(&text.tokens, Default::default(), UNWATCHED)).unwrap();
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
        let plain = block_on(pair.model.loss(&text.tokens, None, Default::default(), UNWATCHED));
        let apart = (plain.unwrap() - seen[0].0).abs();
        assert!(apart <= 1e-5, "an evaluation is {apart} from the cross-entropy");
    }
    for (i, one) in seen.iter().enumerate() {
        for other in &seen[..i] {
            assert!((one.0 - other.0).abs() > 1e-3 && (one.1 - other.1).abs() > 1e-4, "{seen:?}");
        }
    }
}
