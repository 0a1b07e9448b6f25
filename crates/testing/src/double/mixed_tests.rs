//! Mixed precision on an adapter with subgroup matrices: which values are in f16, and how far that leads from f32.

use super::lora_tests::{ALL, Adapted, lora};
use super::session_tests::{options, steps};
use super::tests::{BIASED, LEARNED, NORMED, PARALLEL, Pair, TWO_TABLES, UNTIED, batch, named};
use crate::arch::Architecture;
use crate::config::{LoraConfig, ModelConfig};
use crate::gpu::Gpu;
use crate::kernels::{self as k, Element, Form, KernelSpec};
use crate::lower::{TrainChoices, train_plans};
use crate::params::Params;
use crate::session::{NO_PROGRESS, Precision, Trainer, TrainerOptions};
use pollster::block_on;
use std::rc::Rc;

/// Losses of some steps of two micro-steps.
fn losses(config: &str, precision: Precision, recompute: bool) -> Vec<f64> {
    let pair = Pair::new(&named("NVIDIA"), config);
    let options = TrainerOptions { precision, recompute, ..options() };
    let trainer = block_on(Trainer::create(&pair.model, options, NO_PROGRESS)).unwrap();
    steps(&trainer, 6)
}

#[test]
fn each_family_trains_as_in_f32() {
    for config in [UNTIED, NORMED, TWO_TABLES, BIASED, LEARNED, PARALLEL] {
        let whole = losses(config, Precision::F32, false);
        let mixed = losses(config, Precision::Mixed, false);
        let apart = whole.iter().zip(&mixed).map(|(a, b)| (a - b).abs() / a);
        let worst = apart.fold(0.0, f64::max);
        assert!(worst > 0.0 && worst < 0.01, "{worst} apart: {config}");
        assert_eq!(losses(config, Precision::Mixed, true), mixed, "recomputed: {config}");
    }
}

/// In a gated block the normed rows, the activation and both gradients are in f16, and all products that read them are
/// by matrices.
#[test]
fn what_only_products_read_lies_in_f16() {
    let double = named("NVIDIA");
    let pair = Pair::new(&double, UNTIED);
    let caps = double.capabilities();
    let bytes = caps.limits.shard_bytes();
    let params = Params::new(Architecture::of(&pair.config), bytes).unwrap();
    let choices = TrainChoices { tokens: 64, mixed: true, ..TrainChoices::default() };
    let plans = train_plans(caps, &params, choices).unwrap();
    let [mut norms, mut gates, mut products, mut halves] = [0; 4];
    for dispatch in &plans.micro_step.dispatches {
        let kernel = &plans.micro_step.kernels[dispatch.kernel];
        match kernel.spec {
            KernelSpec::RmsNormForward(norm) if norm.form.half => norms += 1,
            KernelSpec::ActivationForward(k::ActivationForward(of))
            | KernelSpec::ActivationBackward(k::ActivationBackward(of))
                if of.half =>
            {
                gates += 1
            }
            KernelSpec::LinearProduct(k::LinearProduct { shape, .. }) => {
                assert!(kernel.variant.starts_with("matrix "), "{}", kernel.variant);
                products += 1;
                halves += usize::from(shape.a == Element::F16);
            }
            _ => {}
        }
    }
    // Two layers: two norms, forward and backward of the gate; four matrices of three products, and the head's.
    assert_eq!([norms, gates, products], [4, 4, 2 * 4 * 3 + 3]);
    // Forward of all four matrices; of gate and up, and of queries, keys and values, both gradients.
    assert_eq!(halves, 2 * (4 + 2 * 2));
}

/// Attention is by matrices, forward and backward, and the rows before and after it are in f16.
#[test]
fn attention_is_by_matrices_too() {
    let double = named("NVIDIA");
    let pair = Pair::new(&double, UNTIED);
    let caps = double.capabilities();
    let params = Params::new(Architecture::of(&pair.config), caps.limits.shard_bytes()).unwrap();
    let choices = |mixed| TrainChoices { tokens: 64, mixed, ..TrainChoices::default() };
    assert_eq!(train_plans(caps, &params, choices(false)).unwrap().gradient_unit, 1.0);
    let plans = train_plans(caps, &params, choices(true)).unwrap();
    assert_eq!(plans.gradient_unit, 64.0);
    let [mut passes, mut turned, mut gradients] = [0; 3];
    for dispatch in &plans.micro_step.dispatches {
        let kernel = &plans.micro_step.kernels[dispatch.kernel];
        match kernel.spec {
            KernelSpec::AttentionForward(k::AttentionForward { qkv_f16, .. }) => {
                assert!(kernel.variant.starts_with("matrix "), "{}", kernel.reason);
                assert!(qkv_f16, "{kernel:?}");
                passes += 1;
            }
            KernelSpec::AttentionBackwardQuery(k::AttentionBackwardQuery { rows, .. })
            | KernelSpec::AttentionBackwardKeyValue(k::AttentionBackwardKeyValue {
                rows, ..
            }) => {
                assert!(kernel.variant.starts_with("matrix "), "{}", kernel.reason);
                assert!(rows.qkv_f16 && rows.rotated, "{rows:?}");
                passes += 1;
            }
            KernelSpec::RopeRows(rope) if rope.half => turned += 1,
            KernelSpec::LinearProduct(k::LinearProduct { shape, .. })
                if shape.form != Form::MatmulT =>
            {
                gradients += usize::from(shape.a == Element::F16);
            }
            _ => {}
        }
    }
    // In two layers: three passes, the rotation before them, both gradients of two matrices.
    assert_eq!([passes, turned, gradients], [2 * 3, 2, 2 * 4]);
}

/// Gradients are averages over a step's targets, whatever they were multiplied by on their way.
#[test]
fn gradients_are_those_of_f32() {
    let of = |precision| {
        let pair = Pair::new(&named("NVIDIA"), UNTIED);
        let options = TrainerOptions { precision, gradient_accumulation: 1, ..options() };
        let trainer = block_on(Trainer::create(&pair.model, options, NO_PROGRESS)).unwrap();
        steps(&trainer, 1);
        block_on(trainer.read_gradient(0)).unwrap()
    };
    let (whole, mixed) = (of(Precision::F32), of(Precision::Mixed));
    let norm = |x: &mut dyn Iterator<Item = f32>| x.map(|x| x * x).sum::<f32>().sqrt();
    let apart = norm(&mut whole.iter().zip(&mixed).map(|(a, b)| a - b));
    let share = apart / norm(&mut whole.iter().copied());
    assert!(share > 0.0 && share < 0.01, "{share}");
}

/// On adapters that have matrices and on others, with terms of the base's products and without: dropout leaves each module
/// rows of its own.
#[test]
fn an_adapter_trains_as_in_f32() {
    for (config, dropout) in [(UNTIED, 0.0), (NORMED, 0.0), (BIASED, 0.0), (UNTIED, 0.2)] {
        let of = |precision, recompute| {
            let pair = Pair::new(&named("NVIDIA"), config);
            let adapted = Adapted::new(&pair, LoraConfig { dropout, ..lora(&ALL, 4) }, 5);
            let options = TrainerOptions { precision, recompute, ..options() };
            let model = adapted.adapter.model();
            let trainer = block_on(Trainer::create(model, options, NO_PROGRESS)).unwrap();
            steps(&trainer, 6)
        };
        let (whole, mixed) = (of(Precision::F32, false), of(Precision::Mixed, false));
        let apart = whole.iter().zip(&mixed).map(|(a, b)| (a - b).abs() / a);
        let worst = apart.fold(0.0, f64::max);
        assert!(worst > 0.0 && worst < 0.01, "{worst} apart: {config}");
        assert_eq!(of(Precision::Mixed, true), mixed, "recomputed: {config}");
    }
}

/// The base of an adapter is rounded once, and again after a change: steps are those of a trainer that has just been
/// made, but for the dispatches that round.
#[test]
fn a_base_is_rounded_when_it_has_changed() {
    let double = named("NVIDIA");
    let pair = Pair::new(&double, UNTIED);
    let adapted = Adapted::new(&pair, lora(&ALL, 4), 5);
    let model = adapted.adapter.model();
    let batch = batch(&pair.config, 3, 32);
    let made = || {
        let options = TrainerOptions { precision: Precision::Mixed, ..options() };
        block_on(Trainer::create(model, options, NO_PROGRESS)).unwrap()
    };
    let step = |trainer: &Rc<Trainer>| {
        let before = double.counters().dispatches;
        let loss = block_on(trainer.step(&batch)).unwrap().loss;
        (loss, double.counters().dispatches - before)
    };
    let (trainer, rounding) = (made(), model.layout().shards.len() as u64);
    let first = step(&made());
    assert_eq!(step(&trainer), first);
    // The second of two micro-steps, with the update.
    step(&trainer);
    let (loss, dispatches) = step(&made());
    assert_eq!((step(&trainer), dispatches), ((loss, dispatches - rounding), first.1));
    step(&trainer);
    let (name, shape) = &pair.model.tensors()[0];
    let other = vec![0.5; shape.iter().product()];
    block_on(pair.model.write_named(name, &other)).unwrap();
    let changed = step(&made());
    assert!(changed.0 != loss);
    assert_eq!(step(&trainer), changed);
}

/// The seed configuration of the benchmark.
const SEED: &str = r#"{"vocab_size":8192,"hidden_size":768,"intermediate_size":2048,"num_hidden_layers":12,
    "num_attention_heads":12,"num_key_value_heads":4,"max_position_embeddings":8192,"tie_word_embeddings":true}"#;

/// The share of all arithmetic that a plan counts, attention's being that of one document of all tokens.
#[test]
fn nearly_all_arithmetic_of_a_step_is_by_matrices() {
    let double = named("NVIDIA");
    let caps = double.capabilities();
    let config = ModelConfig::from_json(SEED).unwrap();
    let params = Params::new(Architecture::of(&config), caps.limits.shard_bytes()).unwrap();
    for tokens in [512, 4096] {
        let choices = TrainChoices { tokens, mixed: true, ..TrainChoices::default() };
        let plan = train_plans(caps, &params, choices).unwrap().micro_step;
        let [mut all, mut by_matrices] = [0.0; 2];
        for dispatch in &plan.dispatches {
            let kernel = &plan.kernels[dispatch.kernel];
            all += dispatch.cost.flops;
            by_matrices +=
                if kernel.variant.starts_with("matrix ") { dispatch.cost.flops } else { 0.0 };
        }
        let share = by_matrices / all;
        assert!(share > 0.98, "{share} of {tokens} tokens");
    }
}
