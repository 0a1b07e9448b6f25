//! Dispatches that add up the gradients of norms' weights.

use super::{body, config, floor};
use tinyloom_kernels::caps::Capabilities;
use tinyloom_kernels::kernels::norm_rows;
use tinyloom_kernels::lower::{TrainChoices, train_plans};
use tinyloom_model::arch::Architecture;
use tinyloom_model::config::ModelConfig;
use tinyloom_model::params::Params;

const TOKENS: usize = 96;

/// How many there are in a step.
fn sums(caps: &Capabilities, config: &ModelConfig, recompute: bool) -> usize {
    let params = Params::new(Architecture::of(config), caps.limits.binding_bytes()).unwrap();
    let choices = TrainChoices { tokens: TOKENS, recompute, ..TrainChoices::default() };
    let plan = train_plans(caps, &params, choices).unwrap().micro_step;
    plan.dispatches.iter().filter(|dispatch| dispatch.label.contains("norm weight")).count()
}

#[test]
fn gradients_at_equal_distances_are_added_up_at_once() {
    // Seven norms each.
    let llama = body(256, 64, 128, [2, 2, 32], "");
    assert_eq!(sums(&floor(), &llama, false), 1);
    let gpt2 = r#"{"model_type":"gpt2","vocab_size":256,"n_embd":128,"n_layer":3,"n_head":4,"n_positions":128}"#;
    assert_eq!(sums(&floor(), &config(gpt2), false), 4, "biases lie between");
    assert_eq!(sums(&floor(), &llama, true), 7, "memory is to be saved");
}

#[test]
fn partial_sums_that_wait_fit_a_binding() {
    let llama = body(256, 64, 128, [2, 2, 32], "");
    let mut caps = floor();
    // As large as the logits.
    let most = 4 * TOKENS * 256;
    caps.limits.max_storage_buffer_binding_size = most as u64;
    let each = 4 * TOKENS.div_ceil(norm_rows(&caps, TOKENS)) * 64;
    assert!(most / each > 1 && most / each < 7);
    assert_eq!(sums(&caps, &llama, false), 7_usize.div_ceil(most / each));
}
