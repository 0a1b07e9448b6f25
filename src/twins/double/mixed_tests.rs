//! Mixed precision on an adapter with subgroup matrices: which values lie in f16, and how far that leads from f32.

use super::session_tests::{options, steps};
use super::tests::{BIASED, LEARNED, NORMED, PARALLEL, Pair, TWO_TABLES, UNTIED, named};
use crate::arch::Architecture;
use crate::gpu::Gpu;
use crate::kernels::{Element, KernelSpec};
use crate::lower::{TrainChoices, train_plans};
use crate::params::Params;
use crate::session::{Precision, Trainer, TrainerOptions, UNWATCHED};
use pollster::block_on;

/// Losses of some steps of two micro-steps.
fn losses(config: &str, precision: Precision, recompute: bool) -> Vec<f64> {
    let pair = Pair::new(&named("NVIDIA"), config);
    let options = TrainerOptions { precision, recompute, ..options() };
    let trainer = block_on(Trainer::create(&pair.model, options, UNWATCHED)).unwrap();
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

/// Of a gated block the normed rows, the activation and both gradients lie in f16, and all products that read them
/// are by matrices.
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
            KernelSpec::RmsNormForward { half: true, .. } => norms += 1,
            KernelSpec::Activation(of) | KernelSpec::ActivationBackward(of) if of.half => {
                gates += 1
            }
            KernelSpec::Linear { shape, .. } => {
                assert!(kernel.variant.starts_with("matrix "), "{}", kernel.variant);
                products += 1;
                halves += usize::from(shape.a == Element::F16);
            }
            _ => {}
        }
    }
    // Two layers: two norms, forward and backward of the gate; four matrices of three products, and the head's.
    assert_eq!([norms, gates, products], [4, 4, 2 * 4 * 3 + 3]);
    // Forward of three matrices, and of gate and up both gradients.
    assert_eq!(halves, 2 * (3 + 2));
}
