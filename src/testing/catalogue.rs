//! Every kernel that a model asks for, at shapes that reach every branch of selection: for tests
//! that need no GPU.

use super::catalogue_linear::linear;
use crate::caps::Capabilities;
use crate::config::Activation;
use crate::error::Result;
use crate::kernels::{
    self as k, ActivationWidth, AttentionHalves, AttentionPass, AttentionProducts, AttentionShape,
    Constant, DenseMask, Element, Kernel, KeyValueOwner, KvCache, LogitRow, MatvecInput,
    MatvecOutput, MatvecRowsShape, MatvecShape, NormForm, NormTerms, Objective, Parts, RopeShape,
    WeightFormat, WriteMode,
};
use crate::optim::RULES;

/// A kernel by what it is for, or why these capabilities have none.
pub type Entry = (String, Result<Kernel>);

const TERMS: NormTerms = NormTerms::plain(1e-6);
const SHIFTED: NormTerms = NormTerms { shifted: true, ..TERMS };
const HALF: NormForm = NormForm { half: true, ..NormForm::PLAIN };
const RESIDUAL: NormForm = NormForm { residual: true, ..NormForm::PLAIN };
const PARTS: Parts = Parts { count: 3, apart: 4096 };
const SUMMED: NormForm = NormForm { summed: PARTS, ..NormForm::PLAIN };

/// All of them.
pub fn kernels(caps: &Capabilities) -> Vec<Entry> {
    let mut entries = rows(caps);
    entries.extend(head_norms(caps));
    entries.extend(elementwise(caps));
    entries.extend(updates(caps));
    entries.extend(linear(caps));
    entries.extend(attention(caps));
    entries.extend(attention_by_matrices(caps));
    entries.extend(attention_over_tensors(caps));
    entries
}

/// Kernels whose workgroups reduce a row.
fn rows(caps: &Capabilities) -> Vec<Entry> {
    let mut entries = vec![
        ("loss sum".to_owned(), k::loss_sum(caps)),
        ("gradient norm".to_owned(), k::grad_norm(caps)),
    ];
    for width in [1, 61, 768, 4096, 150_001] {
        let mut add = |what: &str, kernel| entries.push((format!("{what} of {width}"), kernel));
        add("norm", k::rms_norm_forward(caps, width, TERMS, NormForm::PLAIN));
        add("norm of parts", k::rms_norm_forward(caps, width, TERMS, SUMMED));
        if width.is_multiple_of(4) {
            add("norm in f16", k::rms_norm_forward(caps, width, TERMS, HALF));
            add("shifted norm in f16", k::rms_norm_forward(caps, width, SHIFTED, HALF));
        }
        let mut backward = |what: &str, terms, parts| {
            add(what, k::rms_norm_backward(caps, width, terms, WriteMode::Add, (2, parts)));
        };
        backward("norm backward", TERMS, Parts::WHOLE);
        backward("norm backward of parts", TERMS, PARTS);
        backward("shifted norm backward", SHIFTED, Parts::WHOLE);
        add("shifted norm", k::rms_norm_forward(caps, width, SHIFTED, NormForm::PLAIN));
        add("shifted norm and residual", k::rms_norm_forward(caps, width, SHIFTED, RESIDUAL));
        add("layer norm", k::layer_norm_forward(caps, width, 1e-5));
        add("layer norm backward", k::layer_norm_backward(caps, width, 1e-5, WriteMode::Add, 2));
        add("norm weight", k::column_sum(caps, width, 2, k::SummedWeights::ONE));
        let several = k::SummedWeights { count: 3, partials: 8 * width, outputs: width + 1 };
        add("norm weights", k::column_sum(caps, width, 2, several));
        let row = LogitRow { vocabulary: width, stride: width.next_multiple_of(4) };
        add("loss", k::cross_entropy(caps, row, false));
        add("loss with gradient", k::cross_entropy(caps, row, true));
        let objective = Objective { label_smoothing: k::Constant(0.1), z_loss: k::Constant(1e-4) };
        let other = |gradient, cap| k::objective_cross_entropy(caps, row, gradient, objective, cap);
        add("smoothed loss", other(true, None));
        for gradient in [false, true] {
            add("capped loss", other(gradient, Some(30.0)));
        }
        add("sample", k::sample(caps, width, false));
        add("sample with a bias", k::sample(caps, width, true));
        add("sample for several", k::sample_several(caps, width, 3));
        add("likeliest", k::top_logits(caps, width, width.min(3)));
        add("decision", k::step_decision(caps, width));
        for element in [Element::F32, Element::F16] {
            let what = format!("softmax in {}", element.name());
            add(&what, k::softmax(caps, width, element));
        }
    }
    entries
}

fn head_norms(caps: &Capabilities) -> Vec<Entry> {
    let mut entries = vec![];
    for (heads, kv_heads, head_dim) in [(1, 1, 4), (16, 8, 128), (3, 1, 80), (4, 1, 256)] {
        let shape = AttentionShape { heads, kv_heads, head_dim, ..AttentionShape::default() };
        let mut add = |what: &str, kernel| {
            entries.push((format!("{what} of {heads}/{kv_heads} x {head_dim}"), kernel));
        };
        add("head norms", k::head_norm_forward(caps, shape, TERMS));
        add("head norms backward", k::head_norm_backward(caps, shape, TERMS, 2));
        add("shifted head norms", k::head_norm_forward(caps, shape, SHIFTED));
        add("shifted head norms backward", k::head_norm_backward(caps, shape, SHIFTED, 2));
    }
    entries
}

fn elementwise(caps: &Capabilities) -> Vec<Entry> {
    let mut entries = vec![];
    for width in [1, 61, 768] {
        let mut add = |what: &str, kernel| entries.push((format!("{what} of {width}"), kernel));
        add("embedding", k::embedding_forward(caps, width, 0));
        add("embedding of a row", k::embedding_forward(caps, width, 64));
        add("embedding backward", k::embedding_backward(caps, width));
        add("positions", k::position_forward(caps, width));
        add("positions backward", k::position_backward(caps, width, 64));
        add("initialize", k::initialize(caps, width * 100_000));
        add("zero", k::zero(caps, width * 100_000));
        add("copy", k::copy_row(caps, width));
        add("scale", k::scale(caps, width, 0.5));
        add("soft cap", k::soft_cap(caps, width, 30.0));
        add("dropout", k::dropout(caps, width, 0.1, WriteMode::Add, false));
        add("dropout and a sum", k::dropout(caps, width, 0.1, WriteMode::Overwrite, true));
        add("checksum", k::checksum(caps, width * 100_000));
        add("average", k::average(caps, width * 40_000, Constant(0.01)));
        for activation in Activation::ALL {
            for gated in [true, false] {
                let parts = Parts::WHOLE;
                for half in [false, gated && width.is_multiple_of(4)] {
                    let shape = ActivationWidth { width, activation, gated, half, parts };
                    add("activation", k::activation(caps, shape));
                    add("activation backward", k::activation_backward(caps, shape));
                    if half {
                        let shape = ActivationWidth { parts: PARTS, ..shape };
                        add("activation of parts", k::activation(caps, shape));
                        add("activation backward of parts", k::activation_backward(caps, shape));
                    }
                }
            }
        }
    }
    entries
}

/// Those of all optimizers' rules.
fn updates(caps: &Capabilities) -> Vec<Entry> {
    let mut entries = vec![];
    for kernel in RULES.into_iter().flat_map(|rule| rule.kernels) {
        for sizes in kernel.tests.sizes {
            let what = format!("{} of {sizes:?}", kernel.name);
            entries.push((what, kernel.of(*sizes).kernel(caps)));
        }
    }
    entries
}

#[expect(clippy::too_many_lines, reason = "a table of kernels")]
fn attention(caps: &Capabilities) -> Vec<Entry> {
    let mut entries = vec![];
    for (heads, kv_heads, head_dim) in
        [(1, 1, 4), (4, 2, 32), (8, 8, 64), (3, 1, 80), (12, 4, 96), (8, 2, 128), (4, 1, 256)]
    {
        let shape = AttentionShape { heads, kv_heads, head_dim, ..AttentionShape::default() };
        let mut add = |what: &str, kernel| entries.push((format!("{what} of {head_dim}"), kernel));
        add("attention", k::attention_forward(caps, shape, false));
        for (ring, weights) in
            [None, Some(300)].into_iter().flat_map(|ring| WeightFormat::ALL.map(|w| (ring, w)))
        {
            let matvec = MatvecShape {
                n: shape.stride() / 2,
                k: heads * head_dim,
                first: 0,
                input: MatvecInput::Norm { epsilon: k::Constant(1e-5) },
                output: MatvecOutput::Heads(AttentionShape { ring, ..shape }),
                weights,
            };
            add(&format!("matvec of heads in {}", weights.name()), k::matvec(caps, matvec));
            let MatvecShape { n, k, input, output, .. } = matvec;
            let (rows, stride) = (5, shape.stride());
            let several = MatvecRowsShape { n, k, rows, stride, input, output, weights };
            add("rows to heads", k::matvec_rows(caps, several));
            if weights == WeightFormat::F32 {
                let output = MatvecOutput::BiasedHeads(AttentionShape { ring, ..shape });
                let kernel = k::matvec(caps, MatvecShape { output, ..matvec });
                add("matvec of heads with biases", kernel);
                let biased = MatvecRowsShape { output, ..several };
                add("rows to heads with biases", k::matvec_rows(caps, biased));
            }
        }
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
        let (heads, stride) = (heads + kv_heads, shape.stride());
        for dims in [head_dim, head_dim / 4 * 2] {
            let shape = RopeShape { heads, head_dim, dims, stride };
            add("rope", k::rope(caps, shape, true));
            add("rope backward", k::rope(caps, shape, false));
            if k::rope_has_halves(shape) {
                add("rope into f16", k::rope_halves(caps, shape, true));
                add("rope backward into f16", k::rope_halves(caps, shape, false));
            }
            if shape.turns_sums() {
                add("rope of parts", k::rope_of_parts(caps, shape, PARTS));
            }
        }
        for cache in KvCache::ALL {
            let name = cache.name();
            add(&format!("{name} cache append"), k::cache_append(caps, shape, cache));
            add(&format!("{name} cache expand"), k::cache_expand(caps, shape, cache));
            let several = k::cache_append_several(caps, shape, cache);
            add(&format!("{name} cache append of several"), several);
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
            add(&format!("{name} ring append"), k::cache_append(caps, ringed, cache));
            add(&format!("{name} ring expand"), k::cache_expand(caps, ringed, cache));
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
