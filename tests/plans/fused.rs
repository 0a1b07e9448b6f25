//! What products compute beside their sums, by plans.

use super::config;
use tinyloom::arch::Architecture;
use tinyloom::caps::{Capabilities, Target};
use tinyloom::kernels::{Fused, KernelSpec, Output};
use tinyloom::lower::{InferenceOptions, TrainChoices, inference_plans, train_plans};
use tinyloom::params::Params;
use tinyloom::plan::Plan;
use tinyloom::testing::adapters;

/// The seed configuration of the benchmark, in another family or not.
fn seed(family: &str) -> Params {
    let config = config(&format!(
        r#"{{"model_type":"{family}","vocab_size":8192,"hidden_size":768,"intermediate_size":2048,
            "num_hidden_layers":12,"num_attention_heads":12,"num_key_value_heads":4,"head_dim":64,
            "max_position_embeddings":8192,"tie_word_embeddings":true}}"#
    ));
    Params::new(Architecture::of(&config), 128 << 20).unwrap()
}

fn adapter(name: &str) -> Capabilities {
    let table = adapters::table(Target::Browser);
    let found = table.into_iter().find(|caps| caps.adapter.description.contains(name));
    found.unwrap_or_else(|| panic!("no adapter {name}"))
}

/// Dispatches by what they compute behind their sums, and those of activations and rotations alone.
#[derive(Debug, Default, PartialEq)]
struct Counts {
    gated: usize,
    gate_gradients: usize,
    turned: usize,
    alone: usize,
}

fn counts(plan: &Plan) -> Counts {
    let mut counts = Counts::default();
    for dispatch in &plan.dispatches {
        match plan.kernels[dispatch.kernel].spec {
            KernelSpec::Linear { output: Output::Fused(fused), .. } => match fused {
                Fused::Gated { .. } => counts.gated += 1,
                Fused::GateGradient { .. } => counts.gate_gradients += 1,
                Fused::Turned(_) => counts.turned += 1,
            },
            KernelSpec::Activation(_)
            | KernelSpec::ActivationBackward(_)
            | KernelSpec::Rope { forward: true, .. } => counts.alone += 1,
            _ => {}
        }
    }
    counts
}

fn trained(caps: &Capabilities, params: &Params, choices: TrainChoices) -> Counts {
    counts(&train_plans(caps, params, choices).unwrap().micro_step)
}

/// Eight documents of 512 tokens.
fn long() -> TrainChoices {
    TrainChoices { tokens: 4096, ..TrainChoices::default() }
}

#[test]
fn a_long_step_of_seed_has_no_dispatch_of_an_activation_or_a_rotation() {
    let all = Counts { gated: 12, gate_gradients: 12, turned: 12, alone: 0 };
    assert_eq!(trained(&adapter("NVIDIA"), &seed("llama"), long()), all);
}

/// Biases and norms stand between a product and its rotation.
#[test]
fn rotations_of_other_families_stay() {
    for family in ["qwen2", "qwen3"] {
        let counts = trained(&adapter("NVIDIA"), &seed(family), long());
        let expected = Counts { gated: 12, gate_gradients: 12, turned: 0, alone: 12 };
        assert_eq!(counts, expected, "{family}");
    }
}

/// The product of gate and up runs again, and its sums come from the same kernel.
#[test]
fn gates_stay_where_their_products_run_again() {
    let counts =
        trained(&adapter("NVIDIA"), &seed("llama"), TrainChoices { recompute: true, ..long() });
    // Heads of all layers but the last run again.
    assert_eq!(counts, Counts { gated: 0, gate_gradients: 12, turned: 12 + 11, alone: 12 });
}

#[test]
fn products_by_matrices_and_those_of_a_cpu_compute_nothing_else() {
    let none = |counts: &Counts| counts.gated + counts.gate_gradients + counts.turned == 0;
    let mixed = TrainChoices { mixed: true, ..long() };
    assert!(none(&trained(&adapter("NVIDIA"), &seed("llama"), mixed)));
    let software = Capabilities { software: true, ..adapter("NVIDIA") };
    assert!(none(&trained(&software, &seed("llama"), long())));
}

/// Matrices that one binding does not hold are multiplied in parts, none of which has all of a pair.
#[test]
fn parts_of_a_matrix_compute_nothing_else() {
    let caps = adapter("NVIDIA");
    let whole = seed("llama");
    let params = Params::new(whole.architecture, 4 << 20).unwrap();
    let counts = trained(&caps, &params, long());
    assert_eq!((counts.gated, counts.gate_gradients), (0, 0));
    assert_eq!(counts.turned, 12, "these matrices are smaller");
}

#[test]
fn chunks_of_a_prompt_are_turned_where_the_tile_has_pairs() {
    let params = seed("llama");
    let all = adapters::table(Target::Browser).into_iter();
    for caps in all.filter(|caps| caps.limits.binding_bytes() >= 128 << 20) {
        let what = &caps.adapter.description;
        let options = InferenceOptions::default();
        let plans = inference_plans(&caps, &params, 2048, options).unwrap();
        for plan in [&plans.prefill, &plans.decode] {
            let counts = counts(plan);
            let layers = [counts.gated, counts.turned];
            assert!(layers.iter().all(|&count| count == 0 || count == 12), "{what}: {counts:?}");
            assert!(counts.gate_gradients == 0, "{what}");
        }
        assert_eq!(counts(&plans.decode).turned, 0, "{what}");
    }
    let integrated = inference_plans(&adapter("Apple"), &params, 2048, InferenceOptions::default());
    let prefill = counts(&integrated.unwrap().prefill);
    assert_eq!((prefill.gated, prefill.turned, prefill.alone), (12, 12, 0));
}
