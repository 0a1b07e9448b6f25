//! Plans at the floor and over the table of adapters: what each dispatch binds is within its buffer and the limits.

use super::{configs, floor};
use std::collections::HashMap;
use tinyloom_kernels::caps::{Capabilities, Target};
use tinyloom_kernels::kernels::{Access, KvCacheFormat, WeightFormat};
use tinyloom_kernels::lower::{InferenceOptions, TrainChoices, inference_plans, train_plans};
use tinyloom_kernels::plan::{Buffer, Plan};
use tinyloom_kernels::testing::gpu_adapters;
use tinyloom_model::arch::Architecture;
use tinyloom_model::config::ModelConfig;
use tinyloom_model::error::ErrorCode;
use tinyloom_model::params::Params;

/// Bytes of the buffers that are not the plan's own, where a plan cannot outgrow them.
fn known_bytes(layout: &Params) -> HashMap<Buffer, u64> {
    let mut bytes = HashMap::new();
    for (index, shard) in layout.shards.iter().enumerate() {
        for set in [Buffer::Weights, Buffer::Gradients, Buffer::Moment1, Buffer::Moment2] {
            bytes.insert(set(index), shard.len as u64 * 4);
        }
    }
    bytes
}

pub(super) fn check_plan(
    what: &str,
    plan: &Plan,
    slots: &[u64],
    caps: &Capabilities,
    layout: &Params,
) {
    assert!(!plan.dispatches.is_empty(), "{what}");
    let known = known_bytes(layout);
    for dispatch in &plan.dispatches {
        let label = format!("{what}, {}", dispatch.label);
        let kernel = &plan.kernels[dispatch.kernel];
        assert_eq!(dispatch.slices.len(), kernel.bindings.len(), "{label}");
        for (i, slice) in dispatch.slices.iter().enumerate() {
            assert!(!matches!(slice.buffer, Buffer::Virtual(_)), "{label}: {slice:?}");
            assert_eq!(slice.offset % 256, 0, "{label}: {slice:?}");
            assert!(slice.bytes >= 4 && slice.bytes % 4 == 0, "{label}: {slice:?}");
            assert!(slice.bytes <= caps.limits.max_storage_buffer_binding_size, "{label}");
            let size = match slice.buffer {
                Buffer::Slot(index) => Some(slots[index]),
                other => known.get(&other).copied(),
            };
            assert!(size.is_none_or(|size| slice.offset + slice.bytes <= size), "{label}");
            let writes = kernel.bindings[i].access == Access::ReadWrite;
            let others = dispatch.slices.iter().enumerate();
            let twice = others.filter(|(j, other)| *j != i && other.buffer == slice.buffer).count();
            assert!(
                !writes || twice == 0,
                "{label}: {:?} is written and bound again",
                slice.buffer
            );
        }
        for rows in [1, plan.tokens] {
            let rows = dispatch.range.rows_of(rows);
            let grid = kernel.grid.resolve(rows, caps.limits.max_compute_workgroups_per_dimension);
            assert!(grid.is_ok(), "{label}: {grid:?}");
        }
    }
}

/// Inference in every format of the cache and of the weights.
fn check_inference(what: &str, caps: &Capabilities, layout: &Params) {
    let caches =
        KvCacheFormat::ALL.map(|kv_cache| InferenceOptions { kv_cache, ..Default::default() });
    let weights =
        WeightFormat::ALL.map(|weights| InferenceOptions { weights, ..Default::default() });
    for options in caches.into_iter().chain(weights) {
        let infer = inference_plans(caps, layout, 2048, options)
            .unwrap_or_else(|e| panic!("{what}, {options:?}: {e}"));
        for (name, plan) in [
            ("prefill", &infer.prefill),
            ("logits", &infer.logits),
            ("loss", &infer.loss),
            ("last row", &infer.last_row),
            ("decode", &infer.decode),
            ("sample", &infer.sample),
            ("pack", &infer.pack),
        ] {
            let what = format!("{what}, {options:?}, {name}");
            // No row of the small configurations is of whole groups.
            if name == "pack" && infer.packed.is_empty() {
                assert!(plan.dispatches.is_empty(), "{what}");
                continue;
            }
            check_plan(&what, plan, &infer.sample.slots, caps, layout);
        }
    }
}

fn check_all(what: &str, caps: &Capabilities, config: &ModelConfig, tokens: usize) {
    let layout =
        Params::new(Architecture::of(config), caps.limits.binding_bytes().min(1 << 30)).unwrap();
    let train = train_plans(caps, &layout, TrainChoices { tokens, ..TrainChoices::default() })
        .unwrap_or_else(|e| panic!("{what}: {e}"));
    for (name, plan) in [
        ("micro-step", &train.micro_step),
        ("optimizer", &train.optimizer),
        ("evaluation", &train.evaluate),
    ] {
        check_plan(&format!("{what}, {name}"), plan, &train.slots, caps, &layout);
    }
    assert_eq!(train.slots, train.micro_step.slots, "{what}: evaluation needs slots of its own");
    check_inference(what, caps, &layout);
    let again = train_plans(
        caps,
        &layout,
        TrainChoices { tokens, recompute: true, ..TrainChoices::default() },
    )
    .unwrap();
    let mixed = TrainChoices { tokens, mixed: true, ..TrainChoices::default() };
    let mixed = train_plans(caps, &layout, mixed).unwrap();
    for (name, plan) in [("micro-step", &mixed.micro_step), ("evaluation", &mixed.evaluate)] {
        check_plan(&format!("{what}, mixed {name}"), plan, &mixed.slots, caps, &layout);
        let mirrors = plan.dispatches.iter().filter(|d| d.label == "weights in f16").count();
        assert_eq!(mirrors, layout.shards.len(), "{what}");
    }
    let name = format!("{what}, micro-step that computes activations again");
    check_plan(&name, &again.micro_step, &again.slots, caps, &layout);
    // But for what adds up parts. Those of gradients wait for each other only where memory is not to be saved, and what
    // an activation adds up in the first pass is read whole where it is computed again.
    const SUMS: [&str; 3] = ["column_sum_forward", "gradient_sum", "linear_sum"];
    let [kept, computed] = [&train, &again].map(|plans| {
        let kernels = plans.micro_step.kernels.iter();
        kernels.filter(|kernel| !SUMS.contains(&kernel.name)).collect::<Vec<_>>()
    });
    assert_eq!(computed, kept, "{what}: it compiles the same");
    let [shared, recomputed] = [&train, &again].map(|plans| plans.slots.iter().sum::<u64>());
    eprintln!(
        "{what}: activation slots of {:.2} MB, {:.2} MB without reuse, {:.2} MB computed again",
        shared as f64 / 1e6,
        train.micro_step.unshared_bytes as f64 / 1e6,
        recomputed as f64 / 1e6
    );
    assert!(shared <= train.micro_step.unshared_bytes, "{what}");
    assert!(recomputed <= shared, "{what}: {recomputed} bytes computed again, {shared} kept");
}

#[test]
fn plans_build_at_the_floor() {
    for (config, tokens) in configs() {
        let what = format!("vocabulary {}, hidden {}", config.vocab_size, config.hidden_size);
        for software in [false, true] {
            check_all(&what, &Capabilities { software, ..floor() }, &config, tokens);
        }
    }
}

/// Builds the plans, or fails with a limit of workgroups by name.
fn built_or_refused_by_name(caps: &Capabilities, config: &ModelConfig, tokens: usize) {
    let layout = Params::new(Architecture::of(config), caps.limits.binding_bytes()).unwrap();
    let train =
        train_plans(caps, &layout, TrainChoices { tokens, ..TrainChoices::default() }).map(|_| ());
    let infer = inference_plans(caps, &layout, 2048, InferenceOptions::default()).map(|_| ());
    if let Err(error) = train.and(infer) {
        assert_eq!(error.code, ErrorCode::LimitExceeded);
        assert!(error.message.contains("needs maxCompute"), "{error}");
    }
}

#[test]
fn plans_build_over_the_table() {
    for caps in gpu_adapters::table(Target::Browser) {
        for (config, tokens) in configs().into_iter().take(5) {
            // Heads of 256 may take more workgroup memory, or more invocations, than these have.
            if config.head_dim == 256 && caps.adapter.description.contains("crippled") {
                built_or_refused_by_name(&caps, &config, tokens);
                continue;
            }
            check_all(&caps.adapter.description, &caps, &config, tokens);
        }
    }
}
