//! Products that give the gradients of gate and up, in whole training steps.

use super::Double;
use super::plan_tests::{plans, trains, tuned};
use super::tests::{ALTERNATING, BIASED, NORMED, PARALLEL, TIED, UNTIED, WINDOWED, named};
use crate::kernels::LinearTile;
use crate::lower::TrainPlans;
use std::rc::Rc;

/// A GPU on which all products of a training step were measured to be fastest by a tile, with K whole.
fn tiled(config: &str, tokens: usize) -> Rc<Double> {
    let gpu = named("NVIDIA");
    let products = plans(&gpu, config, tokens, false).micro_step.products;
    tuned(&gpu, products, LinearTile::Tiled { bm: 128, bn: 64, bk: 16, tm: 8, tn: 8 }, 1)
}

/// Dispatches of a step that give gradients of gates: after their sums, and alone.
fn counts(plans: &TrainPlans) -> [usize; 2] {
    let plan = &plans.micro_step;
    let kernels = || plan.dispatches.iter().map(|dispatch| &plan.kernels[dispatch.kernel]);
    [
        kernels().filter(|kernel| kernel.variant.contains("fused")).count(),
        kernels().filter(|kernel| kernel.name.ends_with("activation_backward")).count(),
    ]
}

#[test]
fn a_step_has_the_twins_loss_gradients_and_weights() {
    for config in [UNTIED, WINDOWED, ALTERNATING, NORMED, BIASED] {
        for recompute in [false, true] {
            let double = tiled(config, 40);
            // There are two layers.
            assert_eq!(counts(&plans(&double, config, 40, recompute)), [2, 0], "{config}");
            trains(&double, config, recompute, [40, 23]);
        }
    }
}

/// Rows that are not of fours, and activations that gate nothing.
#[test]
fn what_no_product_gives_has_dispatches_of_its_own() {
    for config in [TIED, PARALLEL] {
        assert_eq!(counts(&plans(&tiled(config, 40), config, 40, false)), [0, 2], "{config}");
    }
}
