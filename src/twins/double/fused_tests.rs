//! Products that compute what is behind them, in whole training steps.

use super::Double;
use super::plan_tests::trains;
use super::session_tests::{options, steps};
use super::tests::{ALTERNATING, BIASED, NORMED, PARALLEL, Pair, TIED, UNTIED, WINDOWED, named};
use crate::arch::Architecture;
use crate::config::ModelConfig;
use crate::gpu::Gpu;
use crate::kernels::{Fused, KernelSpec, LinearTile, Output, TunedProduct};
use crate::lower::{TrainChoices, TrainPlans, train_plans};
use crate::params::Params;
use crate::session::{Trainer, TrainerOptions, UNWATCHED};
use pollster::block_on;
use std::rc::Rc;

/// Eight columns for an invocation: pairs are in one.
const WIDE: LinearTile = LinearTile::Tiled { bm: 128, bn: 64, bk: 16, tm: 8, tn: 8 };
/// Four columns for an invocation.
const NARROW: LinearTile = LinearTile::Tiled { bm: 32, bn: 32, bk: 16, tm: 4, tn: 4 };

fn plans(double: &Double, config: &str, tokens: usize, recompute: bool) -> TrainPlans {
    let config = ModelConfig::from_json(config).unwrap();
    let caps = double.capabilities();
    let params = Params::new(Architecture::of(&config), caps.limits.shard_bytes()).unwrap();
    let choices = TrainChoices { tokens, recompute, ..TrainChoices::default() };
    train_plans(caps, &params, choices).unwrap()
}

/// A GPU on which all products of a training step were measured to be fastest by this tile.
fn by(tile: LinearTile, config: &str, tokens: usize) -> Rc<Double> {
    let gpu = named("NVIDIA");
    let mut caps = gpu.capabilities().clone();
    let products = plans(&gpu, config, tokens, false).micro_step.products;
    let tuned =
        |shape| TunedProduct { shape, tile, splits: 1, nanoseconds: 1, estimated_nanoseconds: 1 };
    caps.tuned = products.into_iter().map(tuned).collect();
    Double::new(caps)
}

/// How many dispatches of a step compute gates, gradients of gates and rotations behind their sums.
fn fused(plans: &TrainPlans) -> [usize; 3] {
    let mut counts = [0; 3];
    for dispatch in &plans.micro_step.dispatches {
        let spec = plans.micro_step.kernels[dispatch.kernel].spec;
        let KernelSpec::Linear { output: Output::Fused(fused), .. } = spec else { continue };
        counts[match fused {
            Fused::Gated { .. } => 0,
            Fused::GateGradient { .. } => 1,
            Fused::Turned(_) => 2,
        }] += 1;
    }
    counts
}

/// Dispatches of a step by their kernel's name.
fn count(plans: &TrainPlans, name: &str) -> usize {
    let plan = &plans.micro_step;
    plan.dispatches.iter().filter(|dispatch| plan.kernels[dispatch.kernel].name == name).count()
}

#[test]
fn a_step_has_the_twins_loss_gradients_and_weights() {
    for (config, turns) in
        [(UNTIED, true), (WINDOWED, true), (ALTERNATING, true), (NORMED, false), (BIASED, false)]
    {
        for recompute in [false, true] {
            let double = by(WIDE, config, 40);
            let plans = plans(&double, config, 40, recompute);
            // Of two layers. What runs again is the product alone.
            let gates = if recompute { 0 } else { 2 };
            // The first layer's heads run again.
            let heads = if recompute { 3 } else { 2 };
            let turned = if turns { heads } else { 0 };
            assert_eq!(fused(&plans), [gates, 2, turned], "{config}");
            assert_eq!(count(&plans, "rope_forward"), heads - turned, "{config}");
            assert_eq!(count(&plans, "gated_activation_forward") > 0, recompute, "{config}");
            assert_eq!(count(&plans, "gated_activation_backward"), 0, "{config}");
            trains(&double, config, recompute, [40, 23]);
        }
    }
}

/// Rows that are not of fours, and activations that gate nothing.
#[test]
fn what_no_product_computes_has_dispatches_of_its_own() {
    for (config, kernel) in [(TIED, "gated_activation_backward"), (PARALLEL, "activation_backward")]
    {
        let plans = plans(&by(WIDE, config, 40), config, 40, false);
        assert_eq!(fused(&plans), [0, 0, 0], "{config}");
        assert_eq!(count(&plans, kernel), 2, "{config}");
        assert_eq!(count(&plans, "rope_forward"), 2, "{config}");
    }
}

/// Several steps of two micro-steps: to the last bit those where the gates have dispatches of their own.
#[test]
fn it_trains_as_separate_kernels_do() {
    let losses = |tile, config: &str| {
        let of = options();
        let double = by(tile, config, of.tokens_per_step);
        let plans = plans(&double, config, of.tokens_per_step, false);
        let pair = Pair::new(&double, config);
        let trainer =
            block_on(Trainer::create(&pair.model, TrainerOptions { ..of }, UNWATCHED)).unwrap();
        (steps(&trainer, 4), fused(&plans))
    };
    for (config, turned) in [(UNTIED, 2), (BIASED, 0)] {
        let (wide, narrow) = (losses(WIDE, config), losses(NARROW, config));
        assert_eq!([wide.1, narrow.1], [[2, 2, turned], [0, 2, 0]], "{config}");
        assert_eq!(wide.0, narrow.0, "{config}");
    }
}
