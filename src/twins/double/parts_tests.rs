//! Kernels that add up what products split along K have left, in whole training steps.

use super::Double;
use super::plan_tests::trains;
use super::tests::named;
use crate::arch::Architecture;
use crate::config::ModelConfig;
use crate::gpu::Gpu;
use crate::kernels::{Form, KernelSpec, LinearTile, TunedProduct};
use crate::lower::{TrainChoices, TrainPlans, train_plans};
use crate::params::Params;
use crate::plan::Plan;
use std::rc::Rc;

const TOKENS: usize = 40;
const LLAMA: &str = r#"{"model_type":"llama","vocab_size":60,"hidden_size":128,"intermediate_size":128,
    "num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"max_position_embeddings":256,"tie_word_embeddings":true}"#;
/// With a matrix of its own for the head.
const UNTIED: &str = r#"{"model_type":"llama","vocab_size":60,"hidden_size":128,"intermediate_size":128,
    "num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"max_position_embeddings":256,
    "tie_word_embeddings":false}"#;
/// Its norms after attention and the feed-forward block stand between products and the residual stream.
const GEMMA: &str = r#"{"model_type":"gemma2","vocab_size":60,"hidden_size":128,"intermediate_size":128,
    "num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"head_dim":64,"max_position_embeddings":64,
    "query_pre_attn_scalar":64,"sliding_window":32}"#;

fn plans(double: &Double, config: &str, tokens: usize, recompute: bool) -> TrainPlans {
    let config = ModelConfig::from_json(config).unwrap();
    let caps = double.capabilities();
    let params = Params::new(Architecture::of(&config), caps.limits.shard_bytes()).unwrap();
    let choices = TrainChoices { tokens, recompute, ..TrainChoices::default() };
    train_plans(caps, &params, choices).unwrap()
}

/// A GPU on which all products of a training step were measured to be fastest in two parts of K, where K is long enough.
fn split(config: &str, tokens: usize) -> Rc<Double> {
    let gpu = named("NVIDIA");
    let mut caps = gpu.capabilities().clone();
    let products = plans(&gpu, config, tokens, false).micro_step.products;
    let tile = LinearTile::Tiled { bm: 32, bn: 32, bk: 16, tm: 4, tn: 4 };
    let tuned =
        |shape| TunedProduct { shape, tile, splits: 2, nanoseconds: 1, estimated_nanoseconds: 1 };
    caps.tuned = products.into_iter().map(tuned).collect();
    Double::new(caps)
}

/// Kernels of a step that add up parts: norms and gates, forward and backward, and attention backward.
fn counts(plans: &TrainPlans) -> [usize; 5] {
    let plan = &plans.micro_step;
    [
        "rms_norm_forward",
        "rms_norm_backward",
        "gated_activation_forward",
        "gated_activation_backward",
        "attention_delta_backward",
    ]
    .map(|name| {
        let kernels = plan.dispatches.iter().map(|dispatch| &plan.kernels[dispatch.kernel]);
        kernels.filter(|kernel| kernel.name == name && kernel.variant.contains("2 parts")).count()
    })
}

#[test]
fn a_step_has_the_twins_loss_gradients_and_weights() {
    for recompute in [false, true] {
        let double = split(LLAMA, TOKENS);
        let counts = counts(&plans(&double, LLAMA, TOKENS, recompute));
        // Forward behind attention and the feed-forward block; again behind attention of the layer that is computed again.
        assert_eq!(counts, [if recompute { 5 } else { 4 }, 4, 2, 2, 2], "recompute: {recompute}");
        trains(&double, LLAMA, recompute, [TOKENS, 23]);
    }
}

/// What the norm reads is no residual stream; its gradient has two readers.
#[test]
fn norms_behind_a_product_read_it_whole() {
    let double = split(GEMMA, TOKENS);
    assert_eq!(counts(&plans(&double, GEMMA, TOKENS, false)), [0, 4, 2, 2, 2]);
    trains(&double, GEMMA, false, [TOKENS, 23]);
}

/// Long enough for two parts of the tokens.
const LONG: usize = 130;

/// Gradients that each dispatch of a step adds up, and dispatches that add up a product alone.
fn gradient_sums(plan: &Plan) -> (Vec<usize>, usize) {
    let specs = || plan.dispatches.iter().map(|dispatch| plan.kernels[dispatch.kernel].spec);
    let counts = specs().filter_map(|spec| match spec {
        KernelSpec::GradientSum(sums) => Some(sums.count),
        _ => None,
    });
    let alone = specs().filter(
        |spec| matches!(spec, KernelSpec::LinearSum { shape, .. } if shape.form == Form::MatmulAt),
    );
    (counts.collect(), alone.count())
}

#[test]
fn one_dispatch_adds_up_the_gradients_of_four_matrices() {
    for (config, counts) in [(LLAMA, [1, 4, 4]), (UNTIED, [4, 4, 1])] {
        let double = split(config, LONG);
        let plan = plans(&double, config, LONG, false).micro_step;
        assert_eq!(gradient_sums(&plan), (counts.into(), 0), "{config}");
        trains(&double, config, false, [LONG, 23]);
    }
}

/// What is computed again is to save memory.
#[test]
fn nothing_waits_where_activations_are_computed_again() {
    let double = split(LLAMA, LONG);
    let plan = plans(&double, LLAMA, LONG, true).micro_step;
    assert_eq!(gradient_sums(&plan), (vec![], 9));
    trains(&double, LLAMA, true, [LONG, 23]);
}
