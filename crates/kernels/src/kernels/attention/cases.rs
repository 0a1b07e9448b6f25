//! Attention's cases, and its examples.

mod backward;
mod batch;
mod bounds;
mod by_products;
pub(crate) mod decode;
mod decode_qkv;
mod decode_tensors;
pub(crate) mod forward;
mod long;
mod matrix;
pub(crate) mod matrix_forward;
mod probabilities;
pub(crate) mod tensor_problem;
mod tensors;

use crate::caps::Capabilities;
use crate::kernels::{
    self as k, AttentionPass, AttentionProducts, AttentionShape, BackwardRows, BatchAttention,
    CacheAttention, Constant, DecodeOver, DenseMask, Element, KeyValueOwner, KvCacheFormat,
    PartialSums, Scores, Spec, TensorAttention,
};
use crate::testing::Case;
use crate::testing::catalogue::{Entry, HEADS};
use forward::{delta_of, forward_of, group_sum_of, key_value_of, prefill_of, query_of};

pub(crate) fn cases() -> Vec<Case> {
    [
        forward::cases(),
        backward::cases(),
        by_products::cases(),
        matrix_forward::cases(),
        decode::cases(),
        matrix::cases(),
        tensors::cases(),
        decode_qkv::cases(),
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

const PARTS: PartialSums = PartialSums { count: 3, apart: 4096 };
const ENDS: usize = 1024;

fn attention(caps: &Capabilities) -> Vec<Entry> {
    let mut entries = vec![];
    for (heads, kv_heads, head_dim) in HEADS {
        let shape = AttentionShape { heads, kv_heads, head_dim };
        batches(caps, shape, &mut entries);
        prompts(caps, shape, &mut entries);
        decodes(caps, shape, &mut entries);
    }
    entries
}

/// Kernels over a chunk of a prompt.
fn prompts(caps: &Capabilities, shape: AttentionShape, entries: &mut Vec<Entry>) {
    let mut add =
        |what: &str, kernel| entries.push((format!("{what} of {}", shape.head_dim), kernel));
    let attention = CacheAttention { shape, ..CacheAttention::default() };
    add("attention probabilities", k::AttentionProbabilities { attention }.kernel(caps));
    add("attention shares", k::AttentionShares { attention }.kernel(caps));
    let ringed = CacheAttention { window: Some(1024), ring: Some(1279), ..attention };
    for (what, attention) in [("", attention), (" with a ring", ringed)] {
        add(&format!("attention prefill{what}"), prefill_of(attention).kernel(caps));
        if k::matrix_forward_tiles(caps, shape).is_empty() {
            continue;
        }
        for output_f16 in [false, true] {
            let spec =
                k::AttentionForwardCached { rounds: true, output_f16, ..prefill_of(attention) };
            add(&format!("attention prefill by matrices{what}"), spec.kernel(caps));
        }
    }
}

/// Kernels over batches.
fn batches(caps: &Capabilities, shape: AttentionShape, entries: &mut Vec<Entry>) {
    let plain = BatchAttention { shape, ..BatchAttention::default() };
    let mut add =
        |what: &str, kernel| entries.push((format!("{what} of {}", shape.head_dim), kernel));
    add("attention delta", delta_of(shape, PartialSums::WHOLE).kernel(caps));
    add("attention delta of parts", delta_of(shape, PARTS).kernel(caps));
    let dropped = BatchAttention { dropout: Some(Constant(0.1)), ..plain };
    for batch in [plain, dropped] {
        add("attention", forward_of(batch, None).kernel(caps));
        add("attention query", query_of(batch, None).kernel(caps));
        for owner in [KeyValueOwner::Group, KeyValueOwner::Head] {
            add("attention key, value", key_value_of(batch, (owner, ENDS), None).kernel(caps));
        }
    }
    let short = BatchAttention { tokens: 500, ..plain };
    if let Some(room) = k::attention_product_tiles(caps, short) {
        use AttentionProducts::{KeyValueSums, QuerySums, Scores, Sums};
        for products in [Scores, Sums, QuerySums, KeyValueSums] {
            for rotated in [false, products != Scores] {
                let BatchAttention { scores, window, tokens, .. } = short;
                let spec = k::AttentionBackwardProducts {
                    shape,
                    scores,
                    window,
                    tokens,
                    rotated,
                    tiles: room.tiles,
                    first_head: 0,
                    heads: room.heads,
                    ends: ENDS,
                    products,
                };
                add("attention by products", spec.kernel(caps));
            }
        }
    }
    for batch in [plain, short, dropped].map(|batch| BatchAttention { rounds: true, ..batch }) {
        for f16 in [false, true] {
            for tile in k::matrix_forward_tiles(caps, shape) {
                for tile in [Some(tile), None] {
                    let spec = k::AttentionForward { batch, qkv_f16: f16, output_f16: f16, tile };
                    add("attention by matrices", spec.kernel(caps));
                }
            }
        }
    }
    for rotated in [false, shape.rotation().rotates_sums()] {
        let sum = k::AttentionGroupSum { rotated, ..group_sum_of(shape) };
        add("attention group sum", sum.kernel(caps));
    }
}

/// Kernels of decoded rows: short texts and long ones, in one range and in several.
fn decodes(caps: &Capabilities, shape: AttentionShape, entries: &mut Vec<Entry>) {
    let plain = CacheAttention { shape, ..CacheAttention::default() };
    let scores = Scores { soft_cap: Some(Constant(30.0)), ..Scores::default() };
    let windowed = CacheAttention { window: Some(1024), scores, ..plain };
    let ringed = CacheAttention { window: Some(1024), ring: Some(1279), ..plain };
    let mut over = vec![(DecodeOver::Cache(windowed, KvCacheFormat::F32), vec![1024])];
    for cache in KvCacheFormat::ALL {
        over.push((DecodeOver::Rows(plain, cache, 3), vec![64, 32_768]));
        over.push((DecodeOver::Cache(plain, cache), vec![64, 2048, 32_768]));
        over.push((DecodeOver::Cache(ringed, cache), vec![1024]));
    }
    for element in [Element::F32, Element::F16] {
        let tensors = DecodeOver::Tensors(shape, Scores::default(), element, 2);
        over.push((tensors, vec![64, 8192]));
    }
    for (over, keys) in over {
        let rows = match over {
            DecodeOver::Cache(..) => 1,
            DecodeOver::Rows(.., rows) | DecodeOver::Tensors(.., rows) => rows,
        };
        for keys in keys {
            let named = |what: &str| format!("{what} of {keys} keys: {over:?}");
            let made = k::decode_splits(caps, shape, keys, rows);
            let decode =
                made.clone().and_then(|splits| k::AttentionDecode { over, splits }.kernel(caps));
            entries.push((named("attention decode"), decode));
            if keys > 64 {
                let merge = made.and_then(|splits| {
                    k::AttentionDecodeMerge { of: over.partials(), splits }.kernel(caps)
                });
                entries.push((named("attention decode merge"), merge));
            }
        }
    }
}

/// The backward kernels by matrices: every tile, and rows in f32 and in f16.
fn attention_by_matrices(caps: &Capabilities) -> Vec<Entry> {
    let mut entries = vec![];
    for (heads, kv_heads, head_dim) in [(4, 2, 32), (12, 4, 64), (12, 4, 96), (8, 2, 128)] {
        let shape = AttentionShape { heads, kv_heads, head_dim };
        let plain = BatchAttention { shape, rounds: true, ..BatchAttention::default() };
        let dropped = BatchAttention { dropout: Some(Constant(0.1)), ..plain };
        let all =
            BackwardRows { qkv_f16: true, d_output_f16: true, d_qkv_f16: true, rotated: true };
        let mut add = |what: &str, kernel| entries.push((format!("{what} of {head_dim}"), kernel));
        let delta = delta_of(shape, PartialSums::WHOLE);
        let delta = k::AttentionDelta { output_f16: true, d_output_f16: true, ..delta };
        add("attention delta in f16", delta.kernel(caps));
        let sum = k::AttentionGroupSum { d_qkv_f16: true, ..group_sum_of(shape) };
        add("attention group sum in f16", sum.kernel(caps));
        let none = BackwardRows::default();
        for (batch, rows) in [(plain, none), (dropped, none), (plain, all)] {
            for tile in k::attention_matrix_tiles(caps, shape, AttentionPass::Query) {
                let spec = k::AttentionBackwardQuery { batch, rows, tile: Some(tile) };
                add("attention query by matrices", spec.kernel(caps));
            }
            for tile in k::attention_matrix_tiles(caps, shape, AttentionPass::KeyValue) {
                for owner in [KeyValueOwner::Group, KeyValueOwner::Head] {
                    let spec = key_value_of(batch, (owner, ENDS), Some(tile));
                    let spec = k::AttentionBackwardKeyValue { rows, ..spec };
                    add("attention key, value by matrices", spec.kernel(caps));
                }
            }
        }
    }
    entries
}

fn attention_over_tensors(caps: &Capabilities) -> Vec<Entry> {
    let mut entries = vec![];
    for (heads, kv_heads, head_dim) in [(4, 2, 32), (3, 1, 80), (12, 4, 96)] {
        let shape = AttentionShape { heads, kv_heads, head_dim };
        let of = TensorAttention { shape, scores: Scores::default(), tokens: 0 };
        for element in [Element::F32, Element::F16] {
            let what = format!("of {head_dim} over {} tensors", element.name());
            let mut add = |name: &str, kernel| entries.push((format!("{name} {what}"), kernel));
            let batch = 2;
            let delta = k::AttentionDeltaTensors { shape, element, batch };
            add("attention delta", delta.kernel(caps));
            for pass in [AttentionPass::Forward, AttentionPass::Query, AttentionPass::KeyValue] {
                for dense in [DenseMask::None, DenseMask::Bits, DenseMask::Additive] {
                    let spec = k::AttentionTensors { of, pass, element, dense, batch };
                    add(&format!("{} with {dense:?}", pass.kernel_name()), spec.kernel(caps));
                }
            }
        }
    }
    entries
}
