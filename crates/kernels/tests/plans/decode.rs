//! Plans of inference: how long texts are attended to, and how large a cache is.

use super::{body, configs, floor};
use tinyloom_kernels::caps::{Capabilities, Decoding, Features, GpuClass, Limits, Target};
use tinyloom_kernels::kernels::{KernelSpec, KvCacheFormat, Matvec, MatvecInput, WeightFormat};
use tinyloom_kernels::lower::{CacheShape, InferenceOptions, inference_plans};
use tinyloom_kernels::plan::{Buffer, Dispatch, Plan, buffers};
use tinyloom_kernels::testing::gpu_adapters;
use tinyloom_model::arch::Architecture;
use tinyloom_model::error::ErrorCode;
use tinyloom_model::params::Params;

fn cached(kv_cache: KvCacheFormat) -> InferenceOptions {
    InferenceOptions { kv_cache, ..InferenceOptions::default() }
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
                inference_plans(&caps, &layout, capacity, cached(KvCacheFormat::F16))
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
        for cache in KvCacheFormat::ALL {
            let plans = inference_plans(&caps, &layout, 256, cached(cache)).unwrap();
            assert_eq!(plans.short_context_keys, keys);
            let near = plans.short_context.as_ref().unwrap();
            let names = |plan: &Plan, without: &str| {
                let names = plan.dispatches.iter().map(|d| plan.kernels[d.kernel].name);
                names.filter(|name| *name != without).collect::<Vec<_>>()
            };
            let far = names(&plans.decode, "attention_decode_merge").into_iter();
            let whole =
                |name| if name == "attention_decode_split" { "attention_decode" } else { name };
            assert_eq!(names(near, ""), far.map(whole).collect::<Vec<_>>());
        }
        // Where the class says so, ranges that the output product merges.
        let ranged = Decoding::TEAMS;
        let ranged = Capabilities { decoding: Some(ranged), ..caps.clone() };
        let plans = inference_plans(&ranged, &layout, 256, cached(KvCacheFormat::F32)).unwrap();
        let count = |plan: &Plan, wanted: fn(&KernelSpec) -> bool| {
            plan.dispatches.iter().filter(|d| wanted(&plan.kernels[d.kernel].spec)).count()
        };
        let merges = |spec: &KernelSpec| matches!(spec, KernelSpec::AttentionDecodeMerge(_));
        let products = |spec: &KernelSpec| {
            let ranges = |shape: &Matvec| matches!(shape.input, MatvecInput::PartialSoftmax(..));
            matches!(spec, KernelSpec::Matvec(shape) if ranges(shape))
        };
        let near = plans.short_context.as_ref().unwrap();
        assert_eq!([&plans.decode, near].map(|plan| count(plan, merges).min(1)), [1, 0]);
        let wide = 4 * head_dim >= 8 * 32;
        assert_eq!(count(near, products) > 0, wide, "a subgroup reads 8 numbers each");
        assert_eq!(count(&plans.decode, products), 0, "long ones are merged by a dispatch");
        for without in [Capabilities { software: true, ..caps.clone() }, floor()] {
            let plans =
                inference_plans(&without, &layout, 256, cached(KvCacheFormat::F32)).unwrap();
            assert!(plans.short_context.is_none(), "neither a CPU nor barriers have a plan more");
        }
    }
}

/// Where the class says so and workgroups are large enough, a layer has four dispatches, which bind the same.
#[test]
fn the_newest_row_and_attention_are_one_dispatch() {
    let config = body(256, 768, 2048, [12, 4, 64], "");
    let layers = config.num_hidden_layers;
    let layout = Params::new(Architecture::of(&config), 1 << 30).unwrap();
    let features = Features { subgroups: true, subgroup_id: true, ..Features::default() };
    let decoding = Some(Decoding::TEAMS);
    let small = Capabilities { features, subgroup_size: [32, 32], decoding, ..floor() };
    let limits = Limits {
        max_compute_invocations_per_workgroup: 512,
        max_compute_workgroup_size_x: 512,
        ..small.limits
    };
    let large = Capabilities { limits, ..small.clone() };
    let newest = |plan: &Plan| {
        let of = |d: &&Dispatch| plan.kernels[d.kernel].name == "attention_decode_qkv";
        plan.dispatches.iter().filter(of).count()
    };
    for weights in WeightFormat::ALL {
        let options = InferenceOptions { weights, ..InferenceOptions::default() };
        let plans = inference_plans(&large, &layout, 2048, options).unwrap();
        let near = plans.short_context.as_ref().unwrap();
        assert_eq!(newest(near), layers, "{weights:?}");
        assert_eq!(near.dispatches.len(), 1 + 4 * layers, "{weights:?}");
        assert_eq!(
            near.groups().last(),
            Some(&(layers + 1)),
            "{weights:?}: one group for each layer"
        );
        assert_eq!(
            newest(&plans.decode),
            0,
            "{weights:?}: long texts have more keys than a subgroup's"
        );
        let plans = inference_plans(&small, &layout, 2048, options).unwrap();
        assert_eq!(
            newest(plans.short_context.as_ref().unwrap()),
            0,
            "{weights:?}: 256 invocations are few"
        );
    }
    for cache in [KvCacheFormat::F16, KvCacheFormat::Int8] {
        let plans = inference_plans(&large, &layout, 2048, cached(cache)).unwrap();
        assert_eq!(
            newest(plans.short_context.as_ref().unwrap()),
            0,
            "{cache:?} rounds the newest key"
        );
    }
}

/// A layer has five dispatches, which all bind the same, in every format. The last layer's last one writes elsewhere.
#[test]
fn dispatches_of_a_layer_share_a_bind_group() {
    let config = body(256, 768, 2048, [12, 4, 64], "");
    let layers = config.num_hidden_layers;
    let layout = Params::new(Architecture::of(&config), 1 << 30).unwrap();
    let features = Features { subgroups: true, subgroup_id: true, ..Features::default() };
    let caps = Capabilities { features, subgroup_size: [32, 32], ..floor() };
    for weights in WeightFormat::ALL {
        let options = InferenceOptions { weights, ..InferenceOptions::default() };
        let plans = inference_plans(&caps, &layout, 256, options).unwrap();
        let plan = plans.decode_of(256);
        let groups = plan.groups();
        assert_eq!(groups.len(), 1 + 5 * layers, "{weights:?}");
        assert_eq!(groups.last(), Some(&(layers + 1)), "{weights:?}");
        let of_layer = |layer: usize| groups.iter().filter(|group| **group == layer + 1).count();
        let counts: Vec<_> = (0..layers).map(of_layer).collect();
        assert_eq!(counts, [[5, 5, 4]].concat(), "{weights:?}");
        assert_eq!(plan.kernels.len(), 7, "{weights:?}: each layer has the kernels of the others");
        for dispatch in plan.dispatches[1..].iter().filter(|it| !it.operands.is_empty()) {
            assert_eq!(dispatch.slices.len(), 6, "{weights:?}: {}", dispatch.label);
            for (operand, slice) in &dispatch.operands {
                let inside = dispatch.slices.iter().any(|all| {
                    let ends = [slice, all].map(|it| it.offset + it.bytes);
                    all.buffer == slice.buffer && all.offset <= slice.offset && ends[0] <= ends[1]
                });
                assert!(inside, "{weights:?}: {} {}", dispatch.label, operand.name);
            }
            for (index, (_, a)) in dispatch.operands.iter().enumerate() {
                let apart = dispatch.operands[..index].iter().all(|(_, b)| {
                    let (first, last) = if a.offset < b.offset { (a, b) } else { (b, a) };
                    a.buffer != b.buffer || first.offset + first.bytes <= last.offset
                });
                assert!(apart, "{weights:?}: operands of {} overlap", dispatch.label);
            }
        }
    }
}

#[test]
fn only_a_long_text_on_a_large_gpu_is_read_in_larger_chunks() {
    let of = |rest: &str| {
        let config = body(256, 128, 384, [4, 2, 32], rest);
        Params::new(Architecture::of(&config), 128 << 20).unwrap()
    };
    let plain = of(r#","max_position_embeddings":8192"#);
    let caps = gpu_adapters::table(Target::Native)
        .into_iter()
        .find(|caps| caps.adapter.description.contains("NVIDIA"))
        .unwrap();
    assert_eq!(caps.class(), GpuClass::LARGE);
    let plans = |caps: &Capabilities, layout: &Params, capacity: usize| {
        inference_plans(caps, layout, capacity, InferenceOptions::default()).unwrap()
    };
    let (small, large) = (plans(&caps, &plain, 2048), plans(&caps, &plain, 4096));
    assert!(small.long_prefill.is_none());
    assert_eq!(small.prefill.kernels, large.prefill.kernels, "a cache that grew changes no bit");
    let rows = |unread: usize| large.prefill_of(unread).tokens;
    assert_eq!([2048, 2049].map(rows), [512, 2048]);
    assert_eq!((small.room, large.room, large.chunk), (512, 2048, 512));
    assert!(plans(&floor(), &plain, 4096).long_prefill.is_none());
    let windowed = r#","model_type":"mistral","sliding_window":300,"max_position_embeddings":8192"#;
    assert!(plans(&caps, &of(windowed), 4096).long_prefill.is_none());
}

#[test]
fn a_window_bounds_the_cache_and_no_more_than_the_kernels_of_one_length_compile() {
    let rest = r#","model_type":"mistral","sliding_window":300,"max_position_embeddings":4096"#;
    let config = body(256, 128, 384, [4, 2, 32], rest);
    let layout = Params::new(Architecture::of(&config), floor().limits.binding_bytes()).unwrap();
    for cache in KvCacheFormat::ALL {
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
        let plans = inference_plans(&floor(), &layout, 512, cached(KvCacheFormat::Int8)).unwrap();
        assert_eq!(plans.cache_rows, 512);
        let kernels = plans.prefill.kernels.iter().chain(&plans.decode.kernels);
        assert!(kernels.into_iter().all(|k| !k.wgsl.text().contains("RINGED: bool = true")));
    }
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
