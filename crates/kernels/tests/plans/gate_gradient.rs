//! Which steps have products that give the gradients of gate and up.

use super::config;
use tinyloom_kernels::caps::{Capabilities, Target};
use tinyloom_kernels::kernels::{KernelSpec, LinearProduct, Output};
use tinyloom_kernels::lower::{TrainChoices, train_plans};
use tinyloom_kernels::testing::gpu_adapters;
use tinyloom_model::arch::Architecture;
use tinyloom_model::params::Params;

/// The seed configuration of the benchmark.
fn seed(shard_bytes: u64) -> Params {
    let config = config(
        r#"{"model_type":"llama","vocab_size":8192,"hidden_size":768,"intermediate_size":2048,
            "num_hidden_layers":12,"num_attention_heads":12,"num_key_value_heads":4,"head_dim":64,
            "max_position_embeddings":8192,"tie_word_embeddings":true}"#,
    );
    Params::new(Architecture::of(&config), shard_bytes).unwrap()
}

fn nvidia() -> Capabilities {
    let table = gpu_adapters::table(Target::Browser);
    let found = table.into_iter().find(|caps| caps.adapter.description.contains("NVIDIA"));
    found.expect("an adapter of NVIDIA")
}

/// Eight documents of 512 tokens.
fn long() -> TrainChoices {
    TrainChoices { tokens: 4096, ..TrainChoices::default() }
}

/// Dispatches of a step that give gradients of gates: after their sums, and alone.
fn counts(caps: &Capabilities, params: &Params, choices: TrainChoices) -> [usize; 2] {
    let plan = train_plans(caps, params, choices).unwrap().micro_step;
    let count = |of: fn(&KernelSpec) -> bool| {
        plan.dispatches.iter().filter(|dispatch| of(&plan.kernels[dispatch.kernel].spec)).count()
    };
    [
        count(|spec| {
            matches!(
                spec,
                KernelSpec::LinearProduct(LinearProduct { output: Output::GateGradient(_), .. })
            )
        }),
        count(|spec| matches!(spec, KernelSpec::ActivationBackward(_))),
    ]
}

#[test]
fn products_of_a_long_step_of_seed_give_them() {
    for recompute in [false, true] {
        let choices = TrainChoices { recompute, ..long() };
        assert_eq!(counts(&nvidia(), &seed(128 << 20), choices), [12, 0]);
    }
}

#[test]
fn products_by_matrices_and_those_of_a_cpu_do_not() {
    let mixed = TrainChoices { mixed: true, ..long() };
    assert_eq!(counts(&nvidia(), &seed(128 << 20), mixed), [0, 12]);
    let software = Capabilities { software: true, ..nvidia() };
    assert_eq!(counts(&software, &seed(128 << 20), long()), [0, 12]);
}

/// Matrices that one binding does not hold are multiplied in parts, none of which gives whole sums.
#[test]
fn parts_of_a_matrix_do_not() {
    assert_eq!(counts(&nvidia(), &seed(4 << 20), long()), [0, 12]);
}
