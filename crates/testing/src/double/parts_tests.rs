//! Kernels that add up what products split along K, or heads of a group, have left, in whole training steps.

use super::Double;
use super::plan_tests::{plans, trains, tuned};
use super::tests::{Pair, integers, named};
use crate::arch::Architecture;
use crate::config::ModelConfig;
use crate::gpu::Gpu;
use crate::kernels::{Form, KernelSpec, LinearShape, LinearTile};
use crate::lower::{InferenceOptions, TrainPlans, inference_plans};
use crate::params::Params;
use crate::plan::Plan;
use crate::session::NO_PROGRESS;
use crate::twins::check::assert_close;
use pollster::block_on;
use std::rc::Rc;

const TOKENS: usize = 40;
const LLAMA: &str = r#"{"model_type":"llama","vocab_size":60,"hidden_size":128,"intermediate_size":128,
    "num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"max_position_embeddings":512,"tie_word_embeddings":true}"#;
/// With a matrix of its own for the head.
const UNTIED: &str = r#"{"model_type":"llama","vocab_size":60,"hidden_size":128,"intermediate_size":128,
    "num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"max_position_embeddings":256,
    "tie_word_embeddings":false}"#;
/// Its norms after attention and the feed-forward block stand between products and the residual stream.
const GEMMA: &str = r#"{"model_type":"gemma2","vocab_size":60,"hidden_size":128,"intermediate_size":128,
    "num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"head_dim":64,"max_position_embeddings":64,
    "query_pre_attn_scalar":64,"sliding_window":32}"#;

const PARTS: &str = "2 parts";

/// A GPU on which all products of a training step were measured to be fastest in two parts of K, where K is long enough.
fn split(config: &str, tokens: usize) -> Rc<Double> {
    let gpu = named("NVIDIA");
    let products = plans(&gpu, config, tokens, false).micro_step.products;
    split_products(&gpu, products)
}

fn split_products(gpu: &Double, products: Vec<LinearShape>) -> Rc<Double> {
    tuned(gpu, products, LinearTile::Tiled { bm: 32, bn: 32, bk: 16, tm: 4, tn: 4 }, 2)
}

/// Kernels of a step that add up parts: norms, forward and backward, rotations, gates, forward and backward, and the
/// pre-pass of attention's gradients.
fn counts(plans: &TrainPlans) -> [usize; 6] {
    [
        "rms_norm_forward",
        "rms_norm_backward",
        "rope_forward",
        "activation_forward",
        "activation_backward",
        "attention_delta_backward",
    ]
    .map(|name| count(plans, name, PARTS))
}

/// Dispatches of a step that run a kernel in a form.
fn count(plans: &TrainPlans, name: &str, form: &str) -> usize {
    dispatches(&plans.micro_step, name, form)
}

fn dispatches(plan: &Plan, name: &str, form: &str) -> usize {
    let kernels = plan.dispatches.iter().map(|dispatch| &plan.kernels[dispatch.kernel]);
    kernels.filter(|kernel| kernel.name == name && kernel.variant.contains(form)).count()
}

#[test]
fn a_step_has_the_twins_loss_gradients_and_weights() {
    for recompute in [false, true] {
        let double = split(LLAMA, TOKENS);
        let counts = counts(&plans(&double, LLAMA, TOKENS, recompute));
        // Forward after attention and the feed-forward block. Again after attention of the layer that is computed
        // again, whose queries and keys are rotated again too.
        let expected = if recompute { [5, 4, 3, 2, 2, 2] } else { [4, 4, 2, 2, 2, 2] };
        assert_eq!(counts, expected, "recompute: {recompute}");
        trains(&double, LLAMA, recompute, [TOKENS, 23]);
    }
}

/// What the norm reads is no residual stream; its gradient has two readers.
#[test]
fn norms_behind_a_product_read_it_whole() {
    let double = split(GEMMA, TOKENS);
    assert_eq!(counts(&plans(&double, GEMMA, TOKENS, false)), [0, 4, 2, 2, 2, 2]);
    trains(&double, GEMMA, false, [TOKENS, 23]);
}

/// A bias is added to the product, a norm stands before the rotation, or half a head is not of fours.
#[test]
fn rotations_read_what_is_no_plain_sum_whole() {
    let of = |family: &str| LLAMA.replace("llama", family);
    let short = LLAMA.replace("attention_heads\":2", "attention_heads\":32");
    for config in [of("qwen2"), of("qwen3"), short] {
        let counts = counts(&plans(&split(&config, TOKENS), &config, TOKENS, false));
        assert_eq!(counts[1..3], [4, 0], "{config}");
    }
}

/// Sums of groups turn back, and no rotation does, unless half a head is not of fours.
#[test]
fn sums_of_groups_turn_back() {
    let short = LLAMA.replace("attention_heads\":2", "attention_heads\":32");
    for (config, turned) in [(LLAMA, 2), (GEMMA, 2), (&short, 0)] {
        for recompute in [false, true] {
            let plans = plans(&named("NVIDIA"), config, TOKENS, recompute);
            let counts = [("attention_group_sum", ""), ("attention_group_sum", "rotated back")]
                .map(|(name, form)| count(&plans, name, form));
            assert_eq!(counts, [2, turned], "{config}");
            assert_eq!(count(&plans, "rope_backward", ""), 2 - turned, "{config}");
        }
    }
}

/// For a chunk of a prompt. What its last layer leaves is for another plan: no norm writes it.
#[test]
fn a_prompt_has_the_twins_logits() {
    let gpu = named("NVIDIA");
    let prefill = |double: &Double| {
        let config = ModelConfig::from_json(LLAMA).unwrap();
        let caps = double.capabilities();
        let params = Params::new(Architecture::of(&config), caps.limits.shard_bytes()).unwrap();
        inference_plans(caps, &params, TOKENS, InferenceOptions::default()).unwrap().prefill
    };
    let double = split_products(&gpu, prefill(&gpu).products);
    let plan = prefill(&double);
    let counts = ["rms_norm_forward", "rope_forward"].map(|name| dispatches(&plan, name, PARTS));
    assert_eq!(counts, [3, 2]);
    let pair = Pair::new(&double, LLAMA);
    let prompt = integers(11, TOKENS, 60);
    let options = InferenceOptions::default();
    let got = block_on(pair.model.logits(&prompt, options, NO_PROGRESS)).unwrap();
    let expected = pair.reference().logits(&prompt, &[0; TOKENS]);
    assert_close("logits", &got, &expected, 1e-5, 1e-5);
}

/// Long enough for two parts of the tokens.
const LONG: usize = 130;

/// Logits of 256 and of 44 rows.
const CHUNKED: usize = 300;

/// Gradients that each dispatch of a step adds up, and dispatches that add up a product alone.
fn gradient_sums(plan: &Plan) -> (Vec<usize>, usize) {
    let specs = || plan.dispatches.iter().map(|dispatch| plan.kernels[dispatch.kernel].spec);
    let counts = specs().filter_map(|spec| match spec {
        KernelSpec::GradientSums(sums) => Some(sums.count),
        _ => None,
    });
    let alone = specs().filter(
        |spec| matches!(spec, KernelSpec::LinearSum(sum) if sum.shape.form == Form::MatmulAt),
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

/// The last chunk of logits has too few rows for two parts: its product adds to the gradient that the others left waiting.
#[test]
fn chunks_of_logits_add_to_a_gradient_that_waits() {
    let config = LLAMA.replace("vocab_size\":60", "vocab_size\":2000");
    let mut caps = named("NVIDIA").capabilities().clone();
    caps.limits.max_storage_buffer_binding_size = 2_060_000;
    let gpu = Double::new(caps);
    let double = split_products(&gpu, plans(&gpu, &config, CHUNKED, false).micro_step.products);
    let plan = plans(&double, &config, CHUNKED, false).micro_step;
    assert_eq!(plan.dispatches.iter().filter(|of| of.label == "head weight").count(), 2);
    assert_eq!(gradient_sums(&plan).0[0], 1);
    trains(&double, &config, false, [CHUNKED, 23]);
}
