//! The dispatches of a step that trains an adapter.

use super::config;
use std::collections::BTreeMap;
use tinyloom_kernels::caps::{Capabilities, Target};
use tinyloom_kernels::kernels::KernelSpec;
use tinyloom_kernels::lower::{TrainChoices, train_plans};
use tinyloom_kernels::plan::Plan;
use tinyloom_kernels::testing::gpu_adapters;
use tinyloom_model::arch::Architecture;
use tinyloom_model::config::LoraConfig;
use tinyloom_model::params::Params;

const LAYERS: usize = 28;

/// An adapter of rank 16 on every matrix of Qwen3-0.6B.
fn adapted(dropout: f64, targets: &[&str]) -> Params {
    let config = config(&format!(
        r#"{{"model_type":"qwen3","vocab_size":151936,"hidden_size":1024,"intermediate_size":3072,
            "num_hidden_layers":{LAYERS},"num_attention_heads":16,"num_key_value_heads":8,"head_dim":128,
            "max_position_embeddings":40960,"tie_word_embeddings":true}}"#
    ));
    let bytes = nvidia().limits.shard_bytes();
    let params = Params::new(Architecture::of(&config), bytes).unwrap();
    let targets = targets.iter().map(|&target| target.to_owned()).collect();
    let lora = LoraConfig { rank: 16, alpha: 32.0, dropout, targets, ..LoraConfig::default() };
    params.adapted(params.architecture.adapted(&lora).unwrap()).unwrap()
}

fn nvidia() -> Capabilities {
    let table = gpu_adapters::table(Target::Browser);
    table.into_iter().find(|caps| caps.adapter.description == "NVIDIA").expect("a row")
}

fn step(caps: &Capabilities, params: &Params, choices: TrainChoices) -> Plan {
    let first = params.architecture.low_rank[0].a;
    assert_eq!(params.architecture.first_trained(None).unwrap(), first);
    train_plans(caps, params, choices).unwrap().micro_step
}

/// Dispatches by label without its layer, and by whether they are an adapter's own.
fn labels(plan: &Plan) -> BTreeMap<String, usize> {
    let mut labels = BTreeMap::new();
    for dispatch in &plan.dispatches {
        let words = dispatch.label.split(' ');
        let label: Vec<_> = words.filter(|word| word.parse::<usize>().is_err()).collect();
        *labels.entry(label.join(" ")).or_default() += 1;
    }
    labels
}

/// Three for the modules of a matrix: their short rows, the gradients of these, and the gradients of A and B. All else is
/// in the base's products.
#[test]
fn a_matrix_takes_three_more_dispatches() {
    let params = adapted(0.0, &["all-linear"]);
    for (tokens, mixed, most) in [(512, true, 1200), (2048, true, 1200), (512, false, 1200)] {
        let choices = TrainChoices { tokens, mixed, ..TrainChoices::default() };
        let plan = step(&nvidia(), &params, choices);
        let labels = labels(&plan);
        println!(
            "{tokens} tokens, mixed {mixed}: {} dispatches: {labels:#?}",
            plan.dispatches.len()
        );
        for what in ["q, k, v", "output", "gate, up", "down"] {
            for part in ["", " b input", " weights"] {
                assert_eq!(labels.get(&format!("layer {what} adapter{part}")), Some(&LAYERS));
            }
        }
        let own = labels.iter().filter(|(label, _)| label.contains("adapter"));
        assert_eq!(own.map(|(_, count)| count).sum::<usize>(), 3 * 4 * LAYERS);
        assert!(plan.dispatches.len() < most, "{}", plan.dispatches.len());
        let adapts = |spec: &KernelSpec| matches!(spec, KernelSpec::AdaptedProduct(_));
        let specs = plan.dispatches.iter().map(|dispatch| &plan.kernels[dispatch.kernel].spec);
        // The first layer's input has no gradient.
        assert_eq!(specs.filter(|spec| adapts(spec)).count(), 2 * 4 * LAYERS - 1);
    }
}

/// With dropout each module of queries, keys and values has rows of its own, and so a dispatch of each kind.
#[test]
fn dropout_keeps_modules_apart() {
    let choices = TrainChoices { tokens: 512, ..TrainChoices::default() };
    let labels = labels(&step(&nvidia(), &adapted(0.1, &["all-linear"]), choices));
    for (what, modules) in [("q, k, v", 3), ("gate, up", 2), ("down", 1)] {
        for part in [" b input", " weights"] {
            let count = labels.get(&format!("layer {what} adapter{part}"));
            assert_eq!(count, Some(&(modules * LAYERS)), "{what}{part}");
        }
    }
}

/// Where products have no tile, all four kinds have dispatches of their own.
#[test]
fn a_cpu_adds_to_what_products_give() {
    let caps = Capabilities { software: true, ..nvidia() };
    let choices = TrainChoices { tokens: 64, ..TrainChoices::default() };
    let labels = labels(&step(&caps, &adapted(0.0, &["q_proj", "v_proj"]), choices));
    for (part, count) in [("", LAYERS), (" b", LAYERS), (" b input", LAYERS), (" weights", LAYERS)]
    {
        assert_eq!(labels.get(&format!("layer q, k, v adapter{part}")), Some(&count), "{part}");
    }
    assert_eq!(labels.get("layer q, k, v adapter input"), Some(&(LAYERS - 1)));
}
