//! Attention of large batches: which kernels plans have.

use super::{body, config, floor};
use tinyloom::arch::Architecture;
use tinyloom::caps::Capabilities;
use tinyloom::config::ModelConfig;
use tinyloom::lower::{TrainChoices, TrainPlans, train_plans};
use tinyloom::params::Params;
use tinyloom::plan::Plan;

fn large() -> Capabilities {
    let mut caps = floor();
    caps.adapter.vendor = "nvidia".into();
    caps.adapter.architecture = "hopper".into();
    caps
}

fn plans(config: &ModelConfig, tokens: usize, recompute: bool) -> TrainPlans {
    let caps = large();
    let params = Params::new(Architecture::of(config), caps.limits.binding_bytes()).unwrap();
    train_plans(&caps, &params, TrainChoices { tokens, recompute, ..TrainChoices::default() })
        .unwrap()
}

/// Dispatches of a kernel.
fn count(plan: &Plan, name: &str) -> usize {
    plan.dispatches.iter().filter(|dispatch| plan.kernels[dispatch.kernel].name == name).count()
}

#[test]
fn sums_of_products_turn_gradients_back() {
    // Three layers each; query heads that share keys, and heads of their own.
    for heads in [[8, 4, 64], [8, 8, 64]] {
        let plans = plans(&body(256, 512, 512, heads, ""), 4096, false);
        let long = plans.long.as_ref().expect("more tiles than there is room for");
        assert_eq!(count(&plans.micro_step, "attention_backward_scores"), 3);
        assert_eq!([&plans.micro_step, long].map(|plan| count(plan, "rope_forward")), [3; 2]);
        assert_eq!([&plans.micro_step, long].map(|plan| count(plan, "rope_backward")), [0, 3]);
    }
}

#[test]
fn a_part_of_a_head_is_turned_back_by_a_kernel_of_its_own() {
    let part = config(
        r#"{"model_type":"gpt_neox","vocab_size":256,"hidden_size":512,"intermediate_size":512,
            "num_hidden_layers":2,"num_attention_heads":8,"rotary_pct":0.25,"max_position_embeddings":1024}"#,
    );
    let plan = plans(&part, 1024, false).micro_step;
    assert_eq!(count(&plan, "attention_backward_scores"), 2);
    assert_eq!(count(&plan, "rope_backward"), 2);
}

/// The forward pass of a large batch keeps probabilities for its second kernel alone, where those of the backward pass
/// lie later.
#[test]
fn the_forward_pass_of_large_batches_is_by_products() {
    let model = body(256, 512, 512, [8, 4, 64], "");
    for recompute in [false, true] {
        let plans = plans(&model, 4096, recompute);
        let kernels = |plan: &Plan| {
            ["attention_forward_scores", "attention_forward_sums", "attention_forward"]
                .map(|name| count(plan, name))
        };
        // The backward pass begins with what the last layer has just computed.
        let passes = if recompute { 3 + 2 } else { 3 };
        assert_eq!(kernels(&plans.micro_step), [passes, passes, 0]);
        let long = plans.long.as_ref().expect("more tiles than there is room for");
        assert_eq!(kernels(long), [0, 0, passes], "no room for such documents");
        assert_eq!(kernels(&plans.evaluate), [0, 0, 3], "evaluation counts no tiles");
        let bytes = 4 * (8 * plans.tiles.expect("room for tiles") * 128 * 128) as u64;
        let large = plans.slots.iter().filter(|&&slot| slot >= bytes).count();
        assert_eq!(large, 2, "probabilities and score gradients: {:?}", plans.slots);
    }
}

#[test]
fn shorter_batches_keep_the_kernel_that_keeps_no_probabilities() {
    let model = body(256, 512, 512, [8, 4, 64], "");
    let plan = plans(&model, 31 * 128, false).micro_step;
    assert_eq!(count(&plan, "attention_forward"), 3);
    assert_eq!(count(&plan, "attention_backward_scores"), 3);
}
