//! Nodes of decoded rows are lowered each by itself.

use super::*;
use crate::arch::Architecture;
use crate::caps::{Capabilities, Decoding, Features, Limits, Target};
use crate::config::ModelConfig;
use crate::format::{KvCacheFormat, WeightFormat};
use crate::lower::{CacheShape, InferenceOptions};
use crate::params::Params;
use crate::plan::Dispatch;

fn devices() -> [Capabilities; 3] {
    let floor = Capabilities::floor(Target::Native);
    let features = Features { subgroups: true, subgroup_id: true, ..Features::default() };
    let limits = Limits {
        max_compute_invocations_per_workgroup: 512,
        max_compute_workgroup_size_x: 512,
        ..floor.limits.clone()
    };
    let decoding = Some(Decoding::TEAMS);
    let large =
        Capabilities { features, subgroup_size: [32, 32], decoding, limits, ..floor.clone() };
    [floor.clone(), Capabilities { software: true, ..floor }, large]
}

/// What each node's dispatches are, by node, where nodes are lowered in this order.
fn lowered(
    (mut lowering, layouts): (Lowering<'_>, DecodeLayouts),
    order: impl Fn(usize) -> Vec<usize>,
) -> Vec<Vec<String>> {
    let mut all = vec![vec![]; layouts.nodes.len()];
    for index in order(all.len()) {
        let from = lowering.builder.dispatched();
        lowering.decoded(&layouts.nodes[index]).unwrap();
        all[index] = texts(&lowering.builder, from);
    }
    all
}

/// The dispatches from number `from` on, with what their ranges hold.
fn texts(builder: &Builder<'_>, from: usize) -> Vec<String> {
    let dispatches = builder.dispatches_from(from);
    let text = |(kernel, dispatch): (&k::Kernel, &Dispatch)| {
        let slice = |slice: &Slice| match slice.buffer {
            Buffer::Ranges => format!("{:?}", builder.range_at(slice.offset)),
            _ => format!("{slice:?}"),
        };
        let slices: Vec<_> = dispatch.slices.iter().map(slice).collect();
        let Dispatch { label, range, phase, cost, .. } = dispatch;
        format!("{label} {slices:?} {range:?} {phase:?} {cost:?} {kernel:?}")
    };
    dispatches.map(text).collect()
}

#[test]
fn shuffled_nodes_have_the_same_dispatches() {
    let sizes = r#""vocab_size":256,"hidden_size":768,"intermediate_size":128,"num_hidden_layers":2,
        "num_attention_heads":12,"num_key_value_heads":4"#;
    let shuffled = |count: usize| {
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by_key(|index| (index + 1) * 571 % 1009);
        order
    };
    let mut kernels = std::collections::BTreeSet::new();
    for rest in ["", r#","model_type":"qwen2""#, r#","model_type":"qwen3","head_dim":64"#] {
        let config = ModelConfig::from_json(&format!("{{{sizes}{rest}}}")).unwrap();
        let params = Params::new(Architecture::of(&config), 128 << 20).unwrap();
        for caps in devices() {
            for (kv_cache, weights) in [
                (KvCacheFormat::F32, WeightFormat::F32),
                (KvCacheFormat::Int8, WeightFormat::F32),
                (KvCacheFormat::F32, WeightFormat::Int4),
            ] {
                let options = InferenceOptions { kv_cache, weights, ..Default::default() };
                let shape = CacheShape { sequences: 3, capacity: 512 };
                let context = Inference::new(&caps, &params, shape, options);
                let all = context.graph.nodes.len();
                let made = |case: usize| match case {
                    0 => context.one(0..context.graph.layers_end, context.cache.keys),
                    1 => context.one(0..all, 512),
                    _ => context.batched(BatchedRows::OfTexts(3)),
                };
                for case in 0..3 {
                    let in_order = lowered(made(case).unwrap(), |count| (0..count).collect());
                    assert_eq!(lowered(made(case).unwrap(), shuffled), in_order);
                    assert!(in_order.iter().all(|dispatches| !dispatches.is_empty()));
                    let nodes = made(case).unwrap().1.nodes;
                    kernels.extend(nodes.iter().map(|node| {
                        format!("{:?}", node.op).split([' ', '(']).next().unwrap().to_owned()
                    }));
                }
            }
        }
    }
    assert_eq!(kernels.len(), 10, "every fusion was there: {kernels:?}");
}
