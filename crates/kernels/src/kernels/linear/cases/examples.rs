//! The catalogue's products: of matrices, of a vector or several with a matrix, and the packing of matrices.

use crate::caps::Capabilities;
use crate::config::Activation;
use crate::kernels::low_rank::cases as low_rank;
use crate::kernels::{
    self as k, AdaptedProduct, AttentionShape, CacheAttention, CacheRows, Constant, DecodeQkvShape,
    Element, Form, GradientParts, GradientSums, KvCacheFormat, LinearProduct, LinearShape,
    LinearSum, Matvec, MatvecInput, MatvecOutput, MatvecRows, NewKey, Output, Spec, WeightFormat,
    WriteMode,
};
use crate::testing::catalogue::{Entry, HEADS, MATRICES};

const NORM: MatvecInput = MatvecInput::Norm { epsilon: Constant(1e-5) };

pub(crate) fn examples(caps: &Capabilities) -> Vec<Entry> {
    let mut entries = vec![];
    for form in Form::ALL {
        entries.extend(products(caps, &padded(form)));
        if caps.half_matrix().is_some() {
            entries.extend(products(caps, &LinearShape { half: true, ..padded(form) }));
        }
    }
    entries.push(("gradients in parts".into(), sums().kernel(caps)));
    for ((n, k), tokens) in MATRICES.into_iter().zip([1, 8, 512, 1024, 4096]) {
        for form in Form::ALL {
            let shape = LinearShape::new(form, n, k, tokens);
            entries.extend(products(caps, &shape));
            if caps.half_matrix().is_some() {
                entries.extend(products_by_matrices(caps, &LinearShape { half: true, ..shape }));
            }
        }
        entries.extend(adapted(caps, n, k, tokens));
        entries.extend(gate_gradients(caps, n, k, tokens));
        entries.extend(gates(caps, n, k, tokens));
        entries.extend(matvecs(caps, n, k));
        if (n, k) == (768, 2304) {
            entries.extend(teams(caps, n, k));
            entries.extend(newest(caps, n));
        }
        entries.extend(matvecs_of_rows(caps, n, k));
    }
    HEADS.into_iter().for_each(|of| entries.extend(heads(caps, of)));
    entries
}

fn sums() -> GradientSums {
    let one = GradientParts { elements: 768, count: 3, places: [0, 0] };
    GradientSums { mode: WriteMode::AddAfterFirst, count: GradientSums::MOST, each: [one; 4] }
}

/// Products with an adapter's terms, by all tiles that can.
fn adapted(caps: &Capabilities, n: usize, k: usize, tokens: usize) -> Vec<Entry> {
    let mut entries = vec![];
    for (form, half) in
        [Form::MatmulT, Form::Matmul].into_iter().flat_map(|f| [(f, false), (f, true)])
    {
        let shape = LinearShape { half, ..LinearShape::new(form, n, k, tokens) };
        let low = match form {
            Form::MatmulT => low_rank::shape(16, k, &[n], 0),
            _ => low_rank::shape(16, n, &[k], 0),
        };
        if half && caps.half_matrix().is_none() || !k::linear_adapts(caps, &shape, &low) {
            continue;
        }
        for tile in k::linear_tiles(caps, &shape) {
            let output = Output::Mode(WriteMode::Overwrite);
            let product = LinearProduct { shape, output, splits: 1, tile: Some(tile) };
            let made = AdaptedProduct { product, low }.kernel(caps);
            entries.push((format!("{form:?} of {n}x{k} by {tile:?} with an adapter"), made));
        }
    }
    entries
}

/// Products that give the gradients of gate and up, by all tiles that can.
fn gate_gradients(caps: &Capabilities, n: usize, k: usize, tokens: usize) -> Vec<Entry> {
    let shape = LinearShape::new(Form::Matmul, n, k, tokens);
    let mut entries = vec![];
    for tile in k::linear_tiles(caps, &shape) {
        if !k::tile_gives_gate_gradient(&shape, tile) {
            continue;
        }
        for activation in Activation::ALL {
            let output = Output::GateGradient(activation);
            let made = LinearProduct { shape, output, splits: 1, tile: Some(tile) }.kernel(caps);
            let what = format!("gradient of a gate of {n}x{k} by {tile:?}, {activation:?}");
            entries.push((what, made));
        }
    }
    entries
}

/// Products that give a gate's result, by all tiles that can.
fn gates(caps: &Capabilities, n: usize, k: usize, tokens: usize) -> Vec<Entry> {
    let shape = LinearShape::new(Form::MatmulT, n, k, tokens);
    let (a, b, c) = (Element::F16, WeightFormat::F16, Element::F16);
    let shape = LinearShape { c_stride: n / 2, a, b, c, half: true, ..shape };
    let output = Output::Gated(Activation::Silu);
    let tiles = k::linear_tiles(caps, &shape).into_iter();
    let fit = tiles.filter(|&tile| k::tile_gates(&shape, tile));
    fit.map(|tile| {
        let product = LinearProduct { shape, output, splits: 1, tile: Some(tile) };
        (format!("gate of {n}x{k} by {tile:?}"), product.kernel(caps))
    })
    .collect()
}

/// A product that may round its operands to f16, with operands and results in f32 and in f16.
fn products_by_matrices(caps: &Capabilities, shape: &LinearShape) -> Vec<Entry> {
    let mut entries = products(caps, shape);
    if !k::reads_halves(caps, shape) {
        return entries;
    }
    entries.extend(products(caps, &LinearShape { a: Element::F16, ..*shape }));
    let overwrite = Output::Mode(WriteMode::Overwrite);
    let shape = LinearShape { c: Element::F16, ..*shape };
    for tile in k::linear_tiles(caps, &shape) {
        let what = format!("{} into f16 by {tile:?}", shape.form.name());
        let product =
            LinearProduct { shape, output: overwrite, splits: 1, tile: Some(tile) }.kernel(caps);
        entries.push((what.clone(), product));
        let sum = LinearSum { shape, output: overwrite, splits: 2 };
        entries.push((what, sum.kernel(caps)));
    }
    entries
}

/// Products of a vector with a matrix in each format.
fn matvecs(caps: &Capabilities, n: usize, k: usize) -> Vec<Entry> {
    let mut entries = vec![];
    for (input, output) in [
        (MatvecInput::Plain, MatvecOutput::Plain),
        (MatvecInput::Plain, MatvecOutput::Added),
        (MatvecInput::Plain, MatvecOutput::Residual),
        (MatvecInput::Plain, MatvecOutput::Bias),
        (MatvecInput::Plain, MatvecOutput::BiasedResidual),
        (NORM, MatvecOutput::Plain),
        (NORM, MatvecOutput::Gated(Activation::Silu)),
    ] {
        for weights in WeightFormat::ALL {
            let shape = Matvec { n, k, first: 0, input, output, weights };
            let what = format!("matvec of {n}x{k} in {}", weights.name());
            entries.push((what, shape.kernel(caps)));
        }
    }
    entries
}

/// Attention whose outputs have `width` elements.
fn heads_of(width: usize) -> CacheAttention {
    let shape = AttentionShape { heads: width / 64, kv_heads: width / 192, head_dim: 64 };
    CacheAttention { shape, ..CacheAttention::default() }
}

/// Products that a class may have by teams, and what they put together.
fn teams(caps: &Capabilities, n: usize, k: usize) -> Vec<Entry> {
    let heads = heads_of(k);
    let mut entries = vec![];
    let mut add = |n, input, output, weights: WeightFormat| {
        let shape = Matvec { n, k, first: 0, input, output, weights };
        entries.push((format!("matvec by teams in {}", weights.name()), shape.kernel(caps)));
    };
    for weights in WeightFormat::ALL {
        add(8192, NORM, MatvecOutput::Plain, weights);
        if let Some(splits) = k::merged_splits(caps, heads, 1024) {
            for output in [MatvecOutput::Added, MatvecOutput::Residual] {
                add(n, MatvecInput::PartialSoftmax(heads, splits, NewKey::Among), output, weights);
            }
        }
    }
    add(8192, MatvecInput::Plain, MatvecOutput::Plain, WeightFormat::F16);
    if let Some(splits) = k::merged_splits(caps, heads, 1024) {
        let from = MatvecInput::PartialSoftmax(heads, splits, NewKey::Among);
        add(n, from, MatvecOutput::BiasedResidual, WeightFormat::F32);
        let kernel =
            k::AttentionDecode { over: k::DecodeOver::Cache(heads, KvCacheFormat::F32), splits }
                .kernel(caps);
        entries.push(("attention decode of a short text".into(), kernel));
    }
    entries
}

/// The newest row of `width` in one dispatch, where a class has it so, and the product that puts its key to those
/// before it.
fn newest(caps: &Capabilities, width: usize) -> Vec<Entry> {
    let (mut entries, epsilon) = (vec![], Constant(1e-5));
    let heads = heads_of(width);
    let Some(splits) = k::merged_splits(caps, heads, 1024) else { return entries };
    for weights in WeightFormat::ALL {
        let shape = DecodeQkvShape {
            heads,
            k: width,
            epsilon,
            biased: weights == WeightFormat::F16,
            weights,
        };
        if !k::decode_qkv_fuses(caps, &shape) {
            continue;
        }
        let kernel = k::AttentionDecodeQkv { shape, splits }.kernel(caps);
        entries.push((format!("the newest row by a matrix in {}", weights.name()), kernel));
        let input = MatvecInput::PartialSoftmax(heads, splits, NewKey::Apart);
        let product =
            Matvec { n: width, k: width, first: 0, input, output: MatvecOutput::Added, weights };
        let named = format!("ranges and the newest key by a matrix in {}", weights.name());
        entries.push((named, product.kernel(caps)));
    }
    entries
}

/// Products whose results are heads.
fn heads(caps: &Capabilities, (heads, kv_heads, head_dim): (usize, usize, usize)) -> Vec<Entry> {
    let shape = AttentionShape { heads, kv_heads, head_dim };
    let mut entries = vec![];
    let mut add = |what: &str, kernel| entries.push((format!("{what} of {head_dim}"), kernel));
    for (ring, weights) in
        [None, Some(300)].into_iter().flat_map(|ring| WeightFormat::ALL.map(|w| (ring, w)))
    {
        let matvec = Matvec {
            n: shape.stride() / 2,
            k: heads * head_dim,
            first: 0,
            input: MatvecInput::Norm { epsilon: Constant(1e-5) },
            output: MatvecOutput::Heads(CacheRows { shape, ring }),
            weights,
        };
        add(&format!("matvec of heads in {}", weights.name()), matvec.kernel(caps));
        let Matvec { n, k, input, output, .. } = matvec;
        let (rows, stride) = (5, shape.stride());
        let several = MatvecRows { n, k, rows, stride, input, output, weights };
        add("rows to heads", several.kernel(caps));
        if weights == WeightFormat::F32 {
            let output = MatvecOutput::BiasedHeads(CacheRows { shape, ring });
            let kernel = Matvec { output, ..matvec }.kernel(caps);
            add("matvec of heads with biases", kernel);
            let biased = MatvecRows { output, ..several };
            add("rows to heads with biases", biased.kernel(caps));
        }
    }
    entries
}

/// Products of several vectors with a matrix in each format.
fn matvecs_of_rows(caps: &Capabilities, n: usize, k: usize) -> Vec<Entry> {
    let mut entries = vec![];
    for (rows, input, output) in [
        (1, MatvecInput::Plain, MatvecOutput::Plain),
        (3, MatvecInput::Plain, MatvecOutput::Residual),
        (16, NORM, MatvecOutput::Plain),
        (16, NORM, MatvecOutput::Bias),
        (16, NORM, MatvecOutput::Gated(Activation::Silu)),
        (40, MatvecInput::Plain, MatvecOutput::BiasedResidual),
    ] {
        for weights in WeightFormat::ALL {
            let shape = MatvecRows { n, k, rows, stride: n, input, output, weights };
            let what = format!("{rows} rows by {n}x{k} in {}", weights.name());
            entries.push((what, shape.kernel(caps)));
        }
    }
    entries
}

/// The shape of 61 by 37 with the matrix's rows padded. Its columns are a multiple of four, so that rows are read
/// by vectors.
fn padded(form: Form) -> LinearShape {
    let (n, k) = if form == Form::MatmulT { (61, 40) } else { (64, 37) };
    let [a_stride, c_stride] = [k, n].map(|size: usize| size.next_multiple_of(4));
    LinearShape { a_stride, c_stride, padded: true, ..LinearShape::new(form, n, k, 8) }
}

/// A product with all that it is added to, in each tile, and with B in each format.
fn products(caps: &Capabilities, shape: &LinearShape) -> Vec<Entry> {
    let LinearShape { form, n, k, tokens, padded, .. } = *shape;
    let mut entries = vec![];
    for output in [
        Output::Mode(WriteMode::Overwrite),
        Output::Mode(WriteMode::AddAfterFirst),
        Output::Residual,
        Output::Bias,
        Output::BiasedResidual,
    ] {
        let biased = matches!(output, Output::Bias | Output::BiasedResidual);
        if biased && form != Form::MatmulT {
            continue;
        }
        let rows = if padded { ", padded" } else { "" };
        let what = format!("{} of {n}x{k}{rows}, {tokens} tokens", form.name());
        let mut add = |what: String, product: LinearProduct| {
            entries.push((what.clone(), product.kernel(caps)));
            entries.extend(product.sum().map(|sum| (what, sum.kernel(caps))));
        };
        let row = if form == Form::MatmulT { k } else { n };
        for b in WeightFormat::ALL {
            let fits = b == WeightFormat::F16 && shape.by_vectors();
            if form != Form::MatmulAt && (fits || b.packs(row)) {
                let shape = LinearShape { b, ..*shape };
                let product = LinearProduct::picked(caps, shape, output);
                add(format!("{what}, b in {}", b.name()), product);
            }
        }
        add(what, LinearProduct::picked(caps, *shape, output));
        for tile in k::linear_tiles(caps, shape) {
            let what = format!("{} of {n}x{k}{rows} by {tile:?}", form.name());
            add(what, LinearProduct { shape: *shape, output, splits: 1, tile: Some(tile) });
        }
    }
    entries
}
