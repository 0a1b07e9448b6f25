//! Attention's cases, and its examples.

use crate::caps::Capabilities;
use crate::kernels::{
    self as k, AttentionHalves, AttentionPass, AttentionProducts, AttentionShape, Constant,
    DenseMask, Element, KeyValueOwner, KvCache, Parts,
};
use crate::testing::catalogue::{Entry, HEADS};
use crate::testing::{
    Case, attention as batch, attention_backward, attention_bounds, attention_decode,
    attention_matrix, attention_matrix_forward, attention_probabilities, attention_product,
    attention_products, attention_tensors, decode_tensors, newest,
};

pub(crate) fn cases() -> Vec<Case> {
    [
        batch::cases(),
        attention_backward::cases(),
        attention_products::cases(),
        attention_matrix_forward::cases(),
        attention_decode::cases(),
        attention_matrix::cases(),
        attention_tensors::cases(),
        newest::cases(),
        decode_tensors::cases(),
        attention_bounds::cases(),
        attention_product::cases(),
        attention_probabilities::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

pub(crate) fn examples(caps: &Capabilities) -> Vec<Entry> {
    [attention(caps), attention_by_matrices(caps), attention_over_tensors(caps)]
        .into_iter()
        .flatten()
        .collect()
}

const PARTS: Parts = Parts { count: 3, apart: 4096 };

#[expect(clippy::too_many_lines, reason = "a table of kernels")]
fn attention(caps: &Capabilities) -> Vec<Entry> {
    let mut entries = vec![];
    for (heads, kv_heads, head_dim) in HEADS {
        let shape = AttentionShape { heads, kv_heads, head_dim, ..AttentionShape::default() };
        let mut add = |what: &str, kernel| entries.push((format!("{what} of {head_dim}"), kernel));
        add("attention", k::attention_forward(caps, shape, false));
        add("attention prefill", k::attention_forward(caps, shape, true));
        add("attention probabilities", k::attention_probabilities(caps, shape));
        add("attention delta", k::attention_delta(caps, shape, Parts::WHOLE));
        add("attention delta of parts", k::attention_delta(caps, shape, PARTS));
        add("attention query", k::attention_backward_query(caps, shape));
        for owner in [KeyValueOwner::Group, KeyValueOwner::Head] {
            let kernel = k::attention_backward_key_value(caps, shape, owner, 1024);
            add("attention key, value", kernel);
        }
        let dropped = AttentionShape { dropout: Some(Constant(0.1)), ..shape };
        add("attention with dropout", k::attention_forward(caps, dropped, false));
        add("attention query with dropout", k::attention_backward_query(caps, dropped));
        let kernel = k::attention_backward_key_value(caps, dropped, KeyValueOwner::Group, 1024);
        add("attention key, value with dropout", kernel);
        let short = AttentionShape { tokens: 500, ..shape };
        if let Some(tiles) = k::attention_product_tiles(caps, short) {
            use AttentionProducts::{KeyValueSums, QuerySums, Scores, Sums};
            for products in [Scores, Sums, QuerySums, KeyValueSums] {
                for turned in [false, true] {
                    let shape = AttentionShape { turned: turned && products != Scores, ..short };
                    let places = (tiles, 1024);
                    let kernel = k::attention_backward_products(caps, shape, places, products);
                    add("attention by products", kernel);
                }
            }
        }
        for shape in [shape, short, dropped].map(|shape| AttentionShape { half: true, ..shape }) {
            for halves in [false, true] {
                let halves = AttentionHalves { qkv: halves, output: halves, ..shape.halves };
                let shape = AttentionShape { halves, ..shape };
                for tile in k::matrix_forward_tiles(caps, shape) {
                    let kernel = k::attention_forward_with_tile(caps, shape, false, tile);
                    add("attention by matrices", kernel);
                    add("attention by picked matrices", k::attention_forward(caps, shape, false));
                }
            }
        }
        add("attention group sum", k::attention_group_sum(caps, shape));
        if shape.turning().turns_sums() {
            let turned = AttentionShape { turned: true, ..shape };
            add("attention group sum, turned back", k::attention_group_sum(caps, turned));
        }
        for cache in KvCache::ALL {
            let name = cache.name();
            for capacity in [64, 32_768] {
                let made = k::decode_splits(caps, shape, capacity, 3)
                    .and_then(|splits| k::attention_decode_several(caps, shape, cache, &splits, 3));
                add(&format!("attention decode of several, {capacity} in {name}"), made);
            }
            // Short caches and long ones: one range, several.
            for capacity in [64, 2048, 32_768] {
                let made = k::decode_splits(caps, shape, capacity, 1)
                    .and_then(|splits| k::attention_decode(caps, shape, cache, &splits));
                add(&format!("attention decode of {capacity} in {name}"), made);
            }
        }
        let windowed = AttentionShape { window: Some(1024), soft_cap: Some(30.0), ..shape };
        let window = k::decode_splits(caps, windowed, 32_768, 1)
            .and_then(|splits| k::attention_decode(caps, windowed, KvCache::F32, &splits));
        add("attention decode with a window", window);
        let merge = k::decode_splits(caps, shape, 32_768, 1)
            .and_then(|splits| k::attention_decode_merge(caps, shape, &splits));
        add("attention decode merge", merge);
        let merge = k::decode_splits(caps, shape, 32_768, 3)
            .and_then(|splits| k::attention_decode_merge_several(caps, shape, &splits, 3));
        add("attention decode merge of several", merge);
        for element in [Element::F32, Element::F16] {
            for capacity in [64, 8192] {
                let made = k::decode_splits(caps, shape, capacity, 2).and_then(|splits| {
                    k::attention_decode_tensors(caps, shape, element, &splits, 2)
                });
                add(&format!("attention decode of {capacity} in {element:?} tensors"), made);
            }
            let merge = k::decode_splits(caps, shape, 8192, 2).and_then(|splits| {
                k::attention_decode_merge_tensors(caps, shape, element, &splits, 2)
            });
            add(&format!("attention decode merge to {element:?} tensors"), merge);
        }
        let ringed = AttentionShape { window: Some(1024), ring: Some(1279), ..shape };
        for cache in KvCache::ALL {
            let name = cache.name();
            let made = k::decode_splits(caps, ringed, 32_768, 1)
                .and_then(|splits| k::attention_decode(caps, ringed, cache, &splits));
            add(&format!("attention decode with a ring in {name}"), made);
        }
        add("attention prefill with a ring", k::attention_forward(caps, ringed, true));
    }
    entries
}

/// The backward kernels by matrices: every tile, and rows in f32 and in f16.
fn attention_by_matrices(caps: &Capabilities) -> Vec<Entry> {
    let mut entries = vec![];
    let dropped = |shape| AttentionShape { dropout: Some(Constant(0.1)), ..shape };
    for (heads, kv_heads, head_dim) in [(4, 2, 32), (12, 4, 64), (12, 4, 96), (8, 2, 128)] {
        let plain = AttentionShape { heads, kv_heads, head_dim, half: true, ..Default::default() };
        let all = AttentionHalves { qkv: true, output: true, d_output: true, d_qkv: true };
        for shape in [plain, dropped(plain), AttentionShape { halves: all, turned: true, ..plain }]
        {
            if shape.halves.output {
                let what = |name: &str| format!("{name} of {head_dim} in f16");
                let shape = AttentionShape { turned: false, ..shape };
                entries
                    .push((what("attention delta"), k::attention_delta(caps, shape, Parts::WHOLE)));
                entries.push((what("attention group sum"), k::attention_group_sum(caps, shape)));
            }
            let mut add = |pass: AttentionPass, kernel| {
                entries.push((format!("{} of {head_dim} by matrices", pass.kernel_name()), kernel));
            };
            for tile in k::attention_matrix_tiles(caps, shape, AttentionPass::Query) {
                let kernel = k::attention_backward_query_with_tile(caps, shape, tile);
                add(AttentionPass::Query, kernel);
            }
            let owners = [KeyValueOwner::Group, KeyValueOwner::Head];
            for tile in k::attention_matrix_tiles(caps, shape, AttentionPass::KeyValue) {
                for owner in owners {
                    let kernel =
                        k::attention_backward_key_value_with_tile(caps, shape, owner, 1024, tile);
                    add(AttentionPass::KeyValue, kernel);
                }
            }
        }
    }
    entries
}

fn attention_over_tensors(caps: &Capabilities) -> Vec<Entry> {
    let mut entries = vec![];
    for (heads, kv_heads, head_dim) in [(4, 2, 32), (3, 1, 80), (12, 4, 96)] {
        let shape = AttentionShape { heads, kv_heads, head_dim, ..AttentionShape::default() };
        for element in [Element::F32, Element::F16] {
            let what = format!("of {head_dim} over {} tensors", element.name());
            let mut add = |name: &str, kernel| entries.push((format!("{name} {what}"), kernel));
            add("attention delta", k::attention_delta_tensors(caps, shape, element, 2));
            for pass in [AttentionPass::Forward, AttentionPass::Query, AttentionPass::KeyValue] {
                for dense in [DenseMask::None, DenseMask::Bits, DenseMask::Additive] {
                    let kernel = k::attention_tensors(caps, shape, pass, element, dense, 2);
                    add(&format!("{} with {dense:?}", pass.kernel_name()), kernel);
                }
            }
        }
    }
    entries
}
