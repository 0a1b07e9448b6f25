//! Attention's cases, and its examples.

mod backward;
mod batch;
mod bounds;
mod by_products;
pub(crate) mod decode;
mod decode_tensors;
pub(crate) mod forward;
mod long;
mod matrix;
pub(crate) mod matrix_forward;
mod newest;
mod probabilities;
pub(crate) mod tensor_problem;
mod tensors;

use crate::caps::Capabilities;
use crate::kernels::{
    self as k, AttentionHalves, AttentionPass, AttentionProducts, AttentionShape, Constant,
    DenseMask, Element, KeyValueOwner, KvCache, Parts, Spec,
};
use crate::testing::Case;
use crate::testing::catalogue::{Entry, HEADS};

pub(crate) fn cases() -> Vec<Case> {
    [
        forward::cases(),
        backward::cases(),
        by_products::cases(),
        matrix_forward::cases(),
        decode::cases(),
        matrix::cases(),
        tensors::cases(),
        newest::cases(),
        decode_tensors::cases(),
        bounds::cases(),
        long::cases(),
        probabilities::cases(),
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
        add("attention", k::AttentionForward { shape, cached: false, tile: None }.kernel(caps));
        add(
            "attention prefill",
            k::AttentionForward { shape, cached: true, tile: None }.kernel(caps),
        );
        add("attention probabilities", k::AttentionProbabilities { shape }.kernel(caps));
        add("attention delta", k::AttentionDelta { shape, parts: Parts::WHOLE }.kernel(caps));
        add("attention delta of parts", k::AttentionDelta { shape, parts: PARTS }.kernel(caps));
        add("attention query", k::AttentionBackwardQuery { shape, tile: None }.kernel(caps));
        for owner in [KeyValueOwner::Group, KeyValueOwner::Head] {
            let kernel =
                k::AttentionBackwardKeyValue { shape, owner, ends: 1024, tile: None }.kernel(caps);
            add("attention key, value", kernel);
        }
        let dropped = AttentionShape { dropout: Some(Constant(0.1)), ..shape };
        add(
            "attention with dropout",
            k::AttentionForward { shape: dropped, cached: false, tile: None }.kernel(caps),
        );
        add(
            "attention query with dropout",
            k::AttentionBackwardQuery { shape: dropped, tile: None }.kernel(caps),
        );
        let kernel = k::AttentionBackwardKeyValue {
            shape: dropped,
            owner: KeyValueOwner::Group,
            ends: 1024,
            tile: None,
        }
        .kernel(caps);
        add("attention key, value with dropout", kernel);
        let short = AttentionShape { tokens: 500, ..shape };
        if let Some(tiles) = k::attention_product_tiles(caps, short) {
            use AttentionProducts::{KeyValueSums, QuerySums, Scores, Sums};
            for products in [Scores, Sums, QuerySums, KeyValueSums] {
                for turned in [false, true] {
                    let shape = AttentionShape { turned: turned && products != Scores, ..short };
                    let kernel =
                        k::AttentionBackwardProducts { shape, tiles, ends: 1024, products }
                            .kernel(caps);
                    add("attention by products", kernel);
                }
            }
        }
        for shape in [shape, short, dropped].map(|shape| AttentionShape { half: true, ..shape }) {
            for halves in [false, true] {
                let halves = AttentionHalves { qkv: halves, output: halves, ..shape.halves };
                let shape = AttentionShape { halves, ..shape };
                for tile in k::matrix_forward_tiles(caps, shape) {
                    let kernel =
                        k::AttentionForward { shape, cached: false, tile: Some(tile) }.kernel(caps);
                    add("attention by matrices", kernel);
                    add(
                        "attention by picked matrices",
                        k::AttentionForward { shape, cached: false, tile: None }.kernel(caps),
                    );
                }
            }
        }
        add("attention group sum", k::AttentionGroupSum { shape }.kernel(caps));
        if shape.turning().turns_sums() {
            let turned = AttentionShape { turned: true, ..shape };
            add(
                "attention group sum, turned back",
                k::AttentionGroupSum { shape: turned }.kernel(caps),
            );
        }
        for cache in KvCache::ALL {
            let name = cache.name();
            for capacity in [64, 32_768] {
                let made = k::decode_splits(caps, shape, capacity, 3).and_then(|splits| {
                    k::AttentionDecode { shape, place: k::DecodePlace::Rows(cache, 3), splits }
                        .kernel(caps)
                });
                add(&format!("attention decode of several, {capacity} in {name}"), made);
            }
            // Short caches and long ones: one range, several.
            for capacity in [64, 2048, 32_768] {
                let made = k::decode_splits(caps, shape, capacity, 1).and_then(|splits| {
                    k::AttentionDecode { shape, place: k::DecodePlace::Cache(cache), splits }
                        .kernel(caps)
                });
                add(&format!("attention decode of {capacity} in {name}"), made);
            }
        }
        let windowed = AttentionShape { window: Some(1024), soft_cap: Some(30.0), ..shape };
        let window = k::decode_splits(caps, windowed, 32_768, 1).and_then(|splits| {
            k::AttentionDecode {
                shape: windowed,
                place: k::DecodePlace::Cache(KvCache::F32),
                splits,
            }
            .kernel(caps)
        });
        add("attention decode with a window", window);
        let merge = k::decode_splits(caps, shape, 32_768, 1).and_then(|splits| {
            k::AttentionDecodeMerge { shape, place: k::DecodePlace::Cache(KvCache::F32), splits }
                .kernel(caps)
        });
        add("attention decode merge", merge);
        let merge = k::decode_splits(caps, shape, 32_768, 3).and_then(|splits| {
            k::AttentionDecodeMerge { shape, place: k::DecodePlace::Rows(KvCache::F32, 3), splits }
                .kernel(caps)
        });
        add("attention decode merge of several", merge);
        for element in [Element::F32, Element::F16] {
            for capacity in [64, 8192] {
                let made = k::decode_splits(caps, shape, capacity, 2).and_then(|splits| {
                    k::AttentionDecode { shape, place: k::DecodePlace::Tensors(element, 2), splits }
                        .kernel(caps)
                });
                add(&format!("attention decode of {capacity} in {element:?} tensors"), made);
            }
            let merge = k::decode_splits(caps, shape, 8192, 2).and_then(|splits| {
                k::AttentionDecodeMerge {
                    shape,
                    place: k::DecodePlace::Tensors(element, 2),
                    splits,
                }
                .kernel(caps)
            });
            add(&format!("attention decode merge to {element:?} tensors"), merge);
        }
        let ringed = AttentionShape { window: Some(1024), ring: Some(1279), ..shape };
        for cache in KvCache::ALL {
            let name = cache.name();
            let made = k::decode_splits(caps, ringed, 32_768, 1).and_then(|splits| {
                k::AttentionDecode { shape: ringed, place: k::DecodePlace::Cache(cache), splits }
                    .kernel(caps)
            });
            add(&format!("attention decode with a ring in {name}"), made);
        }
        add(
            "attention prefill with a ring",
            k::AttentionForward { shape: ringed, cached: true, tile: None }.kernel(caps),
        );
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
                entries.push((
                    what("attention delta"),
                    k::AttentionDelta { shape, parts: Parts::WHOLE }.kernel(caps),
                ));
                entries.push((
                    what("attention group sum"),
                    k::AttentionGroupSum { shape }.kernel(caps),
                ));
            }
            let mut add = |pass: AttentionPass, kernel| {
                entries.push((format!("{} of {head_dim} by matrices", pass.kernel_name()), kernel));
            };
            for tile in k::attention_matrix_tiles(caps, shape, AttentionPass::Query) {
                let kernel = k::AttentionBackwardQuery { shape, tile: Some(tile) }.kernel(caps);
                add(AttentionPass::Query, kernel);
            }
            let owners = [KeyValueOwner::Group, KeyValueOwner::Head];
            for tile in k::attention_matrix_tiles(caps, shape, AttentionPass::KeyValue) {
                for owner in owners {
                    let kernel =
                        k::AttentionBackwardKeyValue { shape, owner, ends: 1024, tile: Some(tile) }
                            .kernel(caps);
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
            add(
                "attention delta",
                k::AttentionDeltaTensors { shape, element, batch: 2 }.kernel(caps),
            );
            for pass in [AttentionPass::Forward, AttentionPass::Query, AttentionPass::KeyValue] {
                for dense in [DenseMask::None, DenseMask::Bits, DenseMask::Additive] {
                    let kernel =
                        k::AttentionTensors { shape, pass, element, dense, batch: 2 }.kernel(caps);
                    add(&format!("{} with {dense:?}", pass.kernel_name()), kernel);
                }
            }
        }
    }
    entries
}
