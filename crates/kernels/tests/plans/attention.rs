//! Attention of large batches: which kernels plans have.

use super::{body, config, floor};
use tinyloom_kernels::caps::Capabilities;
use tinyloom_kernels::lower::{TrainChoices, TrainPlans, train_plans};
use tinyloom_kernels::plan::Plan;
use tinyloom_model::arch::Architecture;
use tinyloom_model::config::ModelConfig;
use tinyloom_model::params::Params;

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
fn long_texts_take_turns_of_as_many_heads_as_memory_has_for_them() {
    let mut caps = large();
    caps.limits.max_storage_buffer_binding_size = 1 << 31;
    caps.limits.max_buffer_size = 1 << 31;
    // Layers, hidden size and heads, and the turns of a text of 4,096 tokens.
    for (layers, hidden, [heads, kv_heads], turns) in [(30, 576, [9, 3], 1), (6, 1024, [8, 8], 2)] {
        let config = config(&format!(
            r#"{{"vocab_size":8192,"hidden_size":{hidden},"intermediate_size":{},"max_position_embeddings":4096,
                "num_hidden_layers":{layers},"num_attention_heads":{heads},"num_key_value_heads":{kv_heads}}}"#,
            hidden * 8 / 3
        ));
        let params = Params::new(Architecture::of(&config), caps.limits.binding_bytes()).unwrap();
        let choices = TrainChoices { tokens: 4096, ..TrainChoices::default() };
        let plans = train_plans(&caps, &params, choices).unwrap();
        let long = plans.long.as_ref().expect("more tiles than there is room for");
        assert_eq!(count(long, "attention_backward_scores"), layers * turns);
        let bytes = |plan: &Plan| plan.slots.iter().sum::<u64>();
        assert!(4 * bytes(long) <= 5 * bytes(&plans.micro_step));
    }
}

/// Where one dispatch has all sums, which turn nothing.
#[test]
fn sums_of_groups_turn_gradients_back() {
    for (heads, sums) in [([8, 4, 64], 3), ([8, 8, 64], 0)] {
        let plan = plans(&body(256, 512, 512, heads, ""), 512, false).micro_step;
        assert_eq!(count(&plan, "attention_backward_sums"), 3);
        assert_eq!(count(&plan, "attention_group_sum"), sums);
        assert_eq!(count(&plan, "rope_backward"), 3 - sums);
    }
}

#[test]
fn a_part_of_a_head_is_rotated_back_by_a_kernel_of_its_own() {
    let part = config(
        r#"{"model_type":"gpt_neox","vocab_size":256,"hidden_size":512,"intermediate_size":512,
            "num_hidden_layers":2,"num_attention_heads":8,"rotary_pct":0.25,"max_position_embeddings":1024}"#,
    );
    let plan = plans(&part, 1024, false).micro_step;
    assert_eq!(count(&plan, "attention_backward_scores"), 2);
    assert_eq!(count(&plan, "rope_backward"), 2);
}
