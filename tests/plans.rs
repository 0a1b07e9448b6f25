//! Plans and layouts as plain data, with no GPU.
#![cfg(feature = "testing")]

use std::collections::{HashMap, HashSet};
use tinyloom::arch::Architecture;
use tinyloom::caps::{Capabilities, Decoding, Features, Target};
use tinyloom::config::ModelConfig;
use tinyloom::error::ErrorCode;
use tinyloom::kernels::{
    Access, GRAD_NORM_GROUPS, KernelSpec, KvCache, MatvecInput, MatvecShape, WeightFormat,
};
use tinyloom::lower::{
    CacheShape, InferenceOptions, InferencePlans, TrainChoices, TrainPlans, attention_shape,
    cache_bytes, inference_plans, train_plans,
};
use tinyloom::params::{ALIGN, Params};
use tinyloom::plan::{
    BatchLayout, Buffer, BufferSizes, METRICS_BYTES, OPTIMIZER_BYTES, Plan, PromptLayout,
    STEP_BYTES, buffers,
};
use tinyloom::testing::adapters;

fn config(text: &str) -> ModelConfig {
    ModelConfig::from_json(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn body(vocab: usize, hidden: usize, feed: usize, heads: [usize; 3], rest: &str) -> ModelConfig {
    let [n, kv, dim] = heads;
    config(&format!(
        r#"{{"vocab_size":{vocab},"hidden_size":{hidden},"intermediate_size":{feed},
            "num_hidden_layers":3,"num_attention_heads":{n},"num_key_value_heads":{kv},
            "head_dim":{dim}{rest}}}"#
    ))
}

fn cached(kv_cache: KvCache) -> InferenceOptions {
    InferenceOptions { kv_cache, ..InferenceOptions::default() }
}

/// Configs with the tokens of a step.
fn configs() -> Vec<(ModelConfig, usize)> {
    let tied = r#","tie_word_embeddings":true"#;
    vec![
        (body(256, 64, 128, [2, 2, 32], tied), 96),
        (body(256, 128, 384, [4, 2, 32], ""), 768),
        (body(61, 40, 37, [5, 1, 8], tied), 1),
        (body(61, 42, 29, [4, 2, 12], ""), 131),
        (body(512, 512, 1024, [2, 1, 256], r#","hidden_act":"gelu""#), 64),
        (body(150_000, 896, 4864, [14, 2, 64], tied), 512),
        (body(150_000, 896, 4864, [14, 2, 64], ""), 512),
    ]
}

fn floor() -> Capabilities {
    Capabilities::floor(Target::Native)
}

#[test]
fn tensors_never_overlap_and_decay_ends_where_norms_begin() {
    for (config, _) in configs() {
        for binding_bytes in [128 << 20, 16 << 20, 1 << 30] {
            let layout = Params::new(Architecture::of(&config), binding_bytes).unwrap();
            let mut runs = vec![vec![]; layout.shards.len()];
            for tensor in &layout.tensors {
                let parts = layout.runs(tensor);
                let elements: usize = parts.iter().map(|run| run.len).sum();
                assert_eq!(elements, tensor.shape.iter().product::<usize>(), "{}", tensor.name);
                for run in parts {
                    let shard = layout.shards[run.shard];
                    assert!(run.offset + run.len <= shard.len, "{}", tensor.name);
                    let decayed = tensor.shape.len() == 2;
                    let inside = run.offset + run.len <= shard.decay_end;
                    assert_eq!(inside, decayed, "{} of {shard:?}: {run:?}", tensor.name);
                    assert!(inside || run.offset >= shard.decay_end, "{}", tensor.name);
                    runs[run.shard].push((run.offset, run.offset + run.len));
                }
            }
            for (shard, mut runs) in layout.shards.iter().zip(runs) {
                assert!(shard.len as u64 * 4 <= binding_bytes);
                assert!(shard.decay_end <= shard.len);
                runs.sort_unstable();
                assert!(runs.windows(2).all(|pair| pair[0].1 <= pair[1].0), "tensors overlap");
            }
            let names: Vec<_> =
                Architecture::of(&config).tensors().into_iter().map(|(name, _)| name).collect();
            let mut laid_out: Vec<_> = layout.tensors.iter().map(|t| t.name.clone()).collect();
            laid_out.sort();
            let mut wanted = names.clone();
            wanted.sort();
            assert_eq!(laid_out, wanted);
        }
    }
}

#[test]
fn parts_are_aligned_and_cover_their_matrix() {
    for (config, _) in configs() {
        let layout = Params::new(Architecture::of(&config), 128 << 20).unwrap();
        for matrix in &layout.matrices {
            let mut row = 0;
            for part in &matrix.parts {
                assert_eq!(part.row0, row);
                assert_eq!(part.offset % ALIGN, 0);
                assert_eq!(part.row0 % ALIGN, 0);
                row += part.rows;
            }
            assert_eq!(row, matrix.rows);
        }
        let parts = layout.matrices[layout.architecture.embedding].parts.len();
        assert_eq!(parts, if config.vocab_size == 150_000 { 5 } else { 1 });
    }
}

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

fn check_plan(what: &str, plan: &Plan, slots: &[u64], caps: &Capabilities, layout: &Params) {
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
    let caches = KvCache::ALL.map(|kv_cache| InferenceOptions { kv_cache, ..Default::default() });
    let weights =
        WeightFormat::ALL.map(|weights| InferenceOptions { weights, ..Default::default() });
    for options in caches.into_iter().chain(weights) {
        let infer = inference_plans(caps, &layout, 2048, options)
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
            check_plan(&what, plan, &infer.sample.slots, caps, &layout);
        }
    }
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
    assert_eq!(again.micro_step.kernels, train.micro_step.kernels, "{what}: it compiles the same");
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
    for caps in adapters::table(Target::Browser) {
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

#[test]
fn decode_attention_is_split_by_the_positions_of_the_model() {
    for (positions, expected) in [
        (256, vec!["attention_decode"]),
        (4096, vec!["attention_decode_split", "attention_decode_merge"]),
    ] {
        let rest = format!(r#","max_position_embeddings":{positions}"#);
        let config = body(256, 128, 384, [4, 2, 32], &rest);
        for software in [false, true] {
            let caps = Capabilities { software, ..floor() };
            let layout =
                Params::new(Architecture::of(&config), caps.limits.binding_bytes()).unwrap();
            let kernels = |capacity| {
                inference_plans(&caps, &layout, capacity, cached(KvCache::F16))
                    .unwrap()
                    .decode
                    .kernels
                    .into_iter()
                    .filter(|kernel| kernel.name.starts_with("attention"))
                    .collect::<Vec<_>>()
            };
            let small = kernels(64);
            assert_eq!(small.iter().map(|k| k.name).collect::<Vec<_>>(), expected);
            assert_eq!(small, kernels(positions), "a cache that grows compiles nothing");
        }
    }
}

#[test]
fn short_texts_are_decoded_without_a_merge() {
    let features = Features { subgroups: true, subgroup_id: true, ..Features::default() };
    let caps = Capabilities { features, subgroup_size: [32, 32], ..floor() };
    for (head_dim, keys) in [(32, 1024), (64, 1024), (128, 512)] {
        let rest = r#","max_position_embeddings":4096"#;
        let config = body(256, 128, 384, [4, 2, head_dim], rest);
        let layout =
            Params::new(Architecture::of(&config), floor().limits.binding_bytes()).unwrap();
        for cache in KvCache::ALL {
            let plans = inference_plans(&caps, &layout, 256, cached(cache)).unwrap();
            assert_eq!(plans.near_keys, keys);
            let near = plans.near.as_ref().unwrap();
            let names = |plan: &Plan, without: &str| {
                let names = plan.dispatches.iter().map(|d| plan.kernels[d.kernel].name);
                names.filter(|name| *name != without).collect::<Vec<_>>()
            };
            let far = names(&plans.decode, "attention_decode_merge").into_iter();
            let whole =
                |name| if name == "attention_decode_split" { "attention_decode" } else { name };
            assert_eq!(names(near, ""), far.map(whole).collect::<Vec<_>>());
        }
        // Where the class says so, ranges that the product behind them puts together.
        let ranged = Decoding::TEAMS;
        let ranged = Capabilities { decoding: Some(ranged), ..caps.clone() };
        let plans = inference_plans(&ranged, &layout, 256, cached(KvCache::F32)).unwrap();
        let count = |plan: &Plan, wanted: fn(&KernelSpec) -> bool| {
            plan.dispatches.iter().filter(|d| wanted(&plan.kernels[d.kernel].spec)).count()
        };
        let merges = |spec: &KernelSpec| matches!(spec, KernelSpec::AttentionDecodeMerge { .. });
        let products = |spec: &KernelSpec| {
            let ranges = |shape: &MatvecShape| matches!(shape.input, MatvecInput::Ranges(..));
            matches!(spec, KernelSpec::Matvec(shape) if ranges(shape))
        };
        let near = plans.near.as_ref().unwrap();
        assert_eq!([&plans.decode, near].map(|plan| count(plan, merges).min(1)), [1, 0]);
        let wide = 4 * head_dim >= 8 * 32;
        assert_eq!(count(near, products) > 0, wide, "a subgroup reads 8 numbers each");
        assert_eq!(count(&plans.decode, products), 0, "long ones are merged by a dispatch");
        for without in [Capabilities { software: true, ..caps.clone() }, floor()] {
            let plans = inference_plans(&without, &layout, 256, cached(KvCache::F32)).unwrap();
            assert!(plans.near.is_none(), "neither a CPU nor barriers have a plan more");
        }
    }
}

#[test]
fn a_window_bounds_the_cache_and_no_more_than_the_kernels_of_one_length_compile() {
    let rest = r#","model_type":"mistral","sliding_window":300,"max_position_embeddings":4096"#;
    let config = body(256, 128, 384, [4, 2, 32], rest);
    let layout = Params::new(Architecture::of(&config), floor().limits.binding_bytes()).unwrap();
    for cache in KvCache::ALL {
        let plans = |capacity| inference_plans(&floor(), &layout, capacity, cached(cache)).unwrap();
        let (small, large) = (plans(256), plans(4096));
        assert_eq!(small.cache_rows, 256);
        assert_eq!(large.cache_rows, 300 + large.chunk - 1);
        assert_eq!(small.prefill.kernels, large.prefill.kernels);
        assert_eq!(small.decode.kernels, large.decode.kernels);
        let ringed =
            large.decode.kernels.iter().filter(|k| k.wgsl.text().contains("RINGED: bool = true"));
        assert_eq!(ringed.count(), 2, "to append and to attend");
    }
    // Where the window reaches as far as the positions, and where there is none.
    for rest in [rest.replace("4096", "512"), rest.replace("300", "null")] {
        let config = body(256, 128, 384, [4, 2, 32], &rest);
        let layout = Params::new(Architecture::of(&config), 128 << 20).unwrap();
        let plans = inference_plans(&floor(), &layout, 512, cached(KvCache::Int8)).unwrap();
        assert_eq!(plans.cache_rows, 512);
        let kernels = plans.prefill.kernels.iter().chain(&plans.decode.kernels);
        assert!(kernels.into_iter().all(|k| !k.wgsl.text().contains("RINGED: bool = true")));
    }
}

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
fn a_cache_larger_than_a_binding_is_named() {
    let (config, _) = configs().remove(1);
    let layout = Params::new(Architecture::of(&config), 128 << 20).unwrap();
    // 2 heads of keys and values, 32 wide: 512 bytes a position.
    assert!(inference_plans(&floor(), &layout, 1 << 18, InferenceOptions::default()).is_ok());
    let long = inference_plans(&floor(), &layout, 1 << 19, InferenceOptions::default());
    let error = long.map(|_| ()).unwrap_err();
    assert_eq!(error.code, ErrorCode::LimitExceeded);
    for word in ["key-value cache", "maxStorageBufferBindingSize", "268435456", "134217728"] {
        assert!(error.message.contains(word), "{error}");
    }
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

/// What a trainer holds, from the config alone; without the weights.
fn trainer_sizes(
    config: &ModelConfig,
    layout: &Params,
    plans: &TrainPlans,
    choices: TrainChoices,
) -> BufferSizes {
    let mut sizes = BufferSizes::new();
    for (index, shard) in layout.shards.iter().enumerate() {
        for set in [Buffer::Gradients, Buffer::Moment1, Buffer::Moment2] {
            sizes.insert(set(index), shard.len as u64 * 4);
        }
        if choices.mixed {
            sizes.insert(Buffer::Mirror(index), shard.len as u64 * 2);
        }
    }
    let tokens = choices.tokens as u64;
    sizes.extend((0..).map(Buffer::Slot).zip(plans.slots.iter().copied()));
    sizes.extend([
        (Buffer::Batch, BatchLayout::new(choices.tokens).bytes()),
        (Buffer::Step, STEP_BYTES),
        (Buffer::Losses, tokens * 4),
        (Buffer::Metrics, METRICS_BYTES),
        (Buffer::Optimizer, OPTIMIZER_BYTES),
        (Buffer::Squares, (GRAD_NORM_GROUPS * layout.shards.len()) as u64 * 4),
        (Buffer::RopeTable, tokens * config.head_dim as u64 * 4),
    ]);
    sizes
}

/// What inference holds, from the config alone; without the weights.
fn inference_sizes(
    config: &ModelConfig,
    plans: &InferencePlans,
    capacity: usize,
    options: InferenceOptions,
) -> BufferSizes {
    let (chunk, hidden) = (plans.chunk as u64, config.hidden_size as u64 * 4);
    let vocabulary = config.vocab_size as u64;
    let shape = attention_shape(Architecture::of(config).layers[0].attention, plans.chunk, None);
    let cache = cache_bytes(options.kv_cache, &shape, plans.cache_rows);
    let mut sizes: BufferSizes =
        (0..).map(Buffer::Slot).zip(plans.sample.slots.iter().copied()).collect();
    sizes.extend(plans.packed.iter().copied());
    sizes.extend((0..config.num_hidden_layers).map(|layer| (Buffer::Cache(layer), cache)));
    sizes.extend([
        (Buffer::Batch, PromptLayout::new(plans.chunk).bytes()),
        (Buffer::Step, STEP_BYTES),
        (Buffer::DecodeStep, STEP_BYTES),
        (Buffer::Hidden, chunk * hidden),
        (Buffer::LastHidden, hidden),
        (Buffer::Logits, chunk * vocabulary * 4),
        (Buffer::Losses, chunk * 4),
        (Buffer::Token, 4),
        (Buffer::Seen, vocabulary.div_ceil(32) * 4),
        (Buffer::Drawn, plans.turns as u64 * 8),
        (Buffer::Sampling, 32),
        (Buffer::RopeTable, capacity as u64 * config.head_dim as u64 * 4),
    ]);
    sizes
}

fn without_weights(sizes: BufferSizes) -> BufferSizes {
    sizes.into_iter().filter(|(name, _)| !matches!(name, Buffer::Weights(_))).collect()
}

#[test]
fn plans_bind_each_buffer_whole_and_nothing_else() {
    for (config, tokens) in configs() {
        let layout =
            Params::new(Architecture::of(&config), floor().limits.binding_bytes()).unwrap();
        let choices =
            |mixed| TrainChoices { tokens, recompute: mixed, mixed, ..TrainChoices::default() };
        for choices in [false, true].map(choices) {
            let plans = train_plans(&floor(), &layout, choices).unwrap();
            let sizes = buffers(plans.all());
            for (index, shard) in layout.shards.iter().enumerate() {
                assert_eq!(sizes[&Buffer::Weights(index)], shard.len as u64 * 4);
            }
            let expected = trainer_sizes(&config, &layout, &plans, choices);
            assert_eq!(without_weights(sizes), expected);
        }
        for (kv_cache, weights) in [
            (KvCache::F32, WeightFormat::F32),
            (KvCache::Int8, WeightFormat::F32),
            (KvCache::F16, WeightFormat::Int8),
        ] {
            let options = InferenceOptions { kv_cache, weights };
            let plans = inference_plans(&floor(), &layout, 512, options).unwrap();
            let expected = inference_sizes(&config, &plans, 512, options);
            assert_eq!(without_weights(buffers(plans.all())), expected);
        }
    }
}

/// What the host reads of inference: losses, and tokens drawn.
#[test]
fn inference_writes_nothing_that_nobody_reads() {
    for (config, _) in configs() {
        let layout =
            Params::new(Architecture::of(&config), floor().limits.binding_bytes()).unwrap();
        let plans = inference_plans(&floor(), &layout, 512, InferenceOptions::default()).unwrap();
        let bound = |wanted: fn(Access) -> bool| {
            let dispatches = plans.all().into_iter().flat_map(|plan| {
                plan.dispatches.iter().map(|dispatch| (dispatch, &plan.kernels[dispatch.kernel]))
            });
            let slices = dispatches.flat_map(|(dispatch, kernel)| {
                dispatch.slices.iter().map(|slice| slice.buffer).zip(&kernel.bindings)
            });
            slices
                .filter(|(_, binding)| wanted(binding.access))
                .map(|(buffer, _)| buffer)
                .collect::<HashSet<_>>()
        };
        let read = bound(|access| access != Access::ReadWrite);
        let mut unread = bound(|access| access == Access::ReadWrite);
        // An activation may be left over: the logsumexp serves the backward pass alone. The bits of
        // tokens seen are read and written by one kernel.
        unread.retain(|buffer| {
            !read.contains(buffer) && !matches!(buffer, Buffer::Slot(_) | Buffer::Seen)
        });
        assert_eq!(unread, HashSet::from([Buffer::Losses, Buffer::Drawn]));
    }
}

#[test]
fn a_cache_of_several_texts_takes_as_many_rows() {
    let (config, _) = configs().remove(1);
    let layout = Params::new(Architecture::of(&config), floor().limits.binding_bytes()).unwrap();
    let bytes = |sequences| {
        let shape = CacheShape { sequences, capacity: 512 };
        let plans = inference_plans(&floor(), &layout, shape, InferenceOptions::default()).unwrap();
        assert_eq!(plans.shape, shape);
        buffers(plans.all())[&Buffer::Cache(0)]
    };
    assert_eq!(bytes(3), 3 * bytes(1));
}
