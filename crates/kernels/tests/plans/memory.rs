//! What does not fit a binding is cut or named, and activations computed again take less.

use super::build::check_plan;
use super::{body, configs, floor};
use tinyloom_kernels::lower::{TrainChoices, train_plans};
use tinyloom_model::arch::Architecture;
use tinyloom_model::config::ModelConfig;
use tinyloom_model::error::ErrorCode;
use tinyloom_model::params::{ALIGN, Params};

#[test]
fn what_does_not_fit_is_named() {
    let (config, _) = configs().remove(5);
    let mut caps = floor();
    caps.limits.max_storage_buffer_binding_size = 64 << 10;
    let error = Params::new(Architecture::of(&config), caps.limits.binding_bytes()).unwrap_err();
    assert_eq!(error.code, ErrorCode::LimitExceeded);
    let layout = Params::new(Architecture::of(&config), 128 << 20).unwrap();
    let error =
        train_plans(&floor(), &layout, TrainChoices { tokens: 1 << 20, ..TrainChoices::default() })
            .unwrap_err();
    assert_eq!(error.code, ErrorCode::LimitExceeded);
    assert!(error.message.contains("maxStorageBufferBindingSize"), "{error}");
}

#[test]
fn a_vocabulary_of_150_000_is_split_by_rows_in_every_pass() {
    let (config, tokens) = configs().remove(5);
    let layout = Params::new(Architecture::of(&config), 128 << 20).unwrap();
    let plans =
        train_plans(&floor(), &layout, TrainChoices { tokens, ..TrainChoices::default() }).unwrap();
    let count =
        |label: &str| plans.micro_step.dispatches.iter().filter(|d| d.label == label).count();
    let parts = layout.matrices[layout.architecture.embedding].parts.len();
    let chunks = tokens.div_ceil(plans.logits_rows);
    assert!(plans.logits_rows < tokens && plans.logits_rows.is_multiple_of(ALIGN));
    // Gathered, and its gradient scattered, once a part.
    assert_eq!(count("embedding"), 2 * parts);
    for label in ["logits", "head input", "head weight"] {
        assert_eq!(count(label), parts * chunks, "{label}");
    }
    assert_eq!(count("cross-entropy"), chunks);
}

/// Logits of 50,257 tokens take 201,040 bytes per row. Rows of 64 elements are aligned one by one, those
/// of 24 in groups of eight. From 128 rows on, chunks are of whole tiles. Chunks of 1,024 and 1,280 rows are
/// of more than 64 rows each. 104 MiB hold 542 rows; a model of 1.04 GB has 130 MB for its logits, 647 rows.
#[test]
fn logits_are_cut_as_far_as_alignment_allows() {
    for (tokens, hidden, binding_bytes, expected) in [
        (96, 64, 16 << 20, Some(64)),
        (96, 64, 1 << 20, Some(5)),
        (96, 64, 256 << 10, Some(1)),
        (96, 24, 4 << 20, Some(16)),
        (96, 24, 1 << 20, None),
        (1_024, 64, 128 << 20, Some(512)),
        (1_024, 64, 96 << 20, Some(384)),
        (1_280, 64, 1 << 30, Some(512)),
        (1_280, 2_560, 1 << 30, Some(640)),
    ] {
        let config = body(50_257, hidden, 64, [2, 1, 32], "");
        let mut caps = floor();
        caps.limits.max_storage_buffer_binding_size = binding_bytes;
        let what = format!("{tokens} tokens, hidden {hidden}, {binding_bytes} bytes a binding");
        let layout = Params::new(Architecture::of(&config), caps.limits.binding_bytes()).unwrap();
        let choices = TrainChoices { tokens, ..TrainChoices::default() };
        let Some(rows) = expected else {
            let error = train_plans(&caps, &layout, choices).map(|_| ()).unwrap_err();
            assert_eq!(error.code, ErrorCode::LimitExceeded, "{what}");
            continue;
        };
        let plans = train_plans(&caps, &layout, choices).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(plans.logits_rows, rows, "{what}");
        for plan in [&plans.micro_step, &plans.optimizer, &plans.evaluate] {
            check_plan(&what, plan, &plans.slots, &caps, &layout);
        }
    }
}

/// A layer more costs its input and, where its activations are kept, all that the backward pass reads.
#[test]
fn activations_computed_again_take_the_memory_of_one_layer() {
    let tokens = 512;
    let bytes = |layers: usize, recompute: bool| {
        let config =
            ModelConfig { num_hidden_layers: layers, ..body(256, 128, 384, [4, 2, 32], "") };
        let layout =
            Params::new(Architecture::of(&config), floor().limits.binding_bytes()).unwrap();
        let plans = train_plans(
            &floor(),
            &layout,
            TrainChoices { tokens, recompute, ..Default::default() },
        )
        .unwrap();
        plans.slots.iter().sum::<u64>()
    };
    let input = 4 * (tokens * 128) as u64;
    for layers in [2, 5, 11] {
        assert_eq!(bytes(layers + 1, true) - bytes(layers, true), input, "{layers} layers");
        assert!(bytes(layers + 1, false) - bytes(layers, false) > 10 * input, "{layers} layers");
    }
}
