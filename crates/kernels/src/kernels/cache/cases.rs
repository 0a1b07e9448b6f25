//! The kernels that fill the key-value cache, by themselves and with the projection before, and expand
//! it, and prefill attention over a cache that is a ring.

mod several;

use super::{CacheAppend, CacheExpand};
use crate::arch::Rope;
use crate::caps::Capabilities;
use crate::kernels::attention::cases::decode::{Heads, expanded, packed, shapes};
use crate::kernels::attention::cases::forward::{Setting, prefill_close, prefill_of};
use crate::kernels::attention::twin::causal::{CausalAttention, attention_prefill};
use crate::kernels::linear::cases::matvec::{EPSILON, matvec_matrix, matvec_variants};
use crate::kernels::linear::twin::matvec_forward;
use crate::kernels::norm::twin::rms_norm_forward;
use crate::kernels::rope::twin::{cache_append_forward, rope_forward, rope_table};
use crate::kernels::weights::cases as weights;
use crate::kernels::weights::twin::unpack_weights_forward;
use crate::kernels::{
    self as k, CacheRows, KvCacheFormat, Matvec, MatvecInput, MatvecOutput, Spec, WeightFormat,
    ring_rows,
};
use crate::testing::catalogue::Entry;
use crate::testing::catalogue::HEADS;
use crate::testing::harness::{Job, Operand, POISON, Step};
use crate::testing::lane::Lane;
use crate::testing::ledger::Bits;
use crate::testing::measure::{ROUNDING, close, hold, of, same, text, wide};
use crate::testing::{Case, Outcome};
use std::rc::Rc;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for cache in KvCacheFormat::ALL {
        let name = cache.name();
        let append = move |lane| append(lane, cache);
        cases.push(Case::new(format!("cache_append {name}"), append));
        if cache != KvCacheFormat::F32 {
            cases.push(Case::new(format!("cache_expand {name}"), move |lane| expand(lane, cache)));
        }
    }
    cases.push(Case::new("cache_append f16 beyond its range", beyond_half));
    cases.push(Case::new("matvec of heads into a cache", heads_of_rows));
    for (heads, window, soft_cap) in [((4, 2, 32), 5, Some(1.5)), ((3, 1, 96), 40, None)] {
        let setting = Setting { window: Some(window), soft_cap, ..Setting::plain(heads) };
        let case = format!("attention prefill with a ring, {}", setting.name());
        cases.push(Case::new(case, move |lane| prefill(lane, setting)));
    }
    cases.extend(several::cases());
    cases
}

pub(crate) fn examples(caps: &Capabilities) -> Vec<Entry> {
    let mut entries = vec![];
    for (heads, kv_heads, head_dim) in HEADS {
        let shape = k::AttentionShape { heads, kv_heads, head_dim };
        let rows = |ring| CacheRows { shape, ring };
        for cache in KvCacheFormat::ALL {
            let name = format!("of {head_dim} in {}", cache.name());
            for (what, rows) in [("cache", rows(None)), ("ring", rows(Some(1279)))] {
                let append = CacheAppend { rows, cache, batched: false }.kernel(caps);
                entries.push((format!("{what} append {name}"), append));
                let expand = CacheExpand { rows, cache }.kernel(caps);
                entries.push((format!("{what} expand {name}"), expand));
            }
            let several = CacheAppend { rows: rows(None), cache, batched: true }.kernel(caps);
            entries.push((format!("cache append of several {name}"), several));
        }
    }
    entries
}

/// Widths with heads of one vector and of several.
const CACHES: [Heads; 2] = [(1, 1, 4), (6, 2, 20)];
/// Rows of the cache that is appended to.
const ROWS: usize = 9;

async fn append(lane: Rc<Lane>, cache: KvCacheFormat) -> Outcome {
    for heads in CACHES {
        for (tokens, position, ring) in
            [(1, 0, None), (1, 8, None), (5, 3, None), (5, 25, Some(ROWS))]
        {
            let (shape, kernel_shape) = shapes(heads, tokens);
            let rows_of = CacheRows { ring, ..kernel_shape.cache() };
            let made = lane
                .variants_of(k::CacheAppend { rows: rows_of, cache, batched: false })
                .map_err(text)?;
            let words = kernel_shape.shape.row_words(cache);
            let mut qkv = lane.normal(tokens * shape.qkv_width());
            // A head of zeros, and one of numbers whose squares would vanish.
            qkv[shape.key_offset()..][..shape.head_dim].fill(0.0);
            qkv[shape.value_offset()..][..shape.head_dim].iter_mut().for_each(|x| *x *= 1e-3);
            let mut rows = vec![0.0f32; tokens * shape.cache_width()];
            cache_append_forward(shape, &qkv, &mut rows, 0);
            let step = Step { position: position as u32, ..Step::of(tokens) };
            let operands =
                [Operand::floats(&qkv), Operand::poison(ROWS * words), Operand::uniform(&step)];
            let jobs: Vec<_> =
                made.iter().map(|kernel| Job::new(kernel, tokens, operands.to_vec())).collect();
            for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
                let named = of(&job.kernel);
                // The rows of the positions first, in their order.
                let mut got = got.words(0).to_vec();
                got.rotate_left(position % ROWS * words);
                let (written, others) = got.split_at(tokens * words);
                same("other rows", others, &vec![POISON; others.len()]).map_err(&named)?;
                appended(cache, shape, written, &rows).map_err(&named)?;
            }
        }
    }
    Ok(lane.summary())
}

/// What f16 cannot hold makes its word NaN, and no other.
async fn beyond_half(lane: Rc<Lane>) -> Outcome {
    let (shape, kernel_shape) = shapes(CACHES[0], 1);
    let cache = KvCacheFormat::F16;
    let made = lane
        .variants_of(k::CacheAppend { rows: kernel_shape.cache(), cache, batched: false })
        .map_err(text)?;
    let mut qkv = lane.normal(shape.qkv_width());
    qkv[shape.key_offset()..][..4].copy_from_slice(&[65504.0, -65504.0, 1.0, 7e4]);
    let words = kernel_shape.shape.row_words(cache);
    let operands = [Operand::floats(&qkv), Operand::poison(words), Operand::uniform(&Step::of(1))];
    let jobs: Vec<_> = made.iter().map(|kernel| Job::new(kernel, 1, operands.to_vec())).collect();
    for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
        let expected = [0xfbff_7bff, 0x7e00_7e00];
        same("keys", &got.words(0)[..2], &expected).map_err(of(&job.kernel))?;
    }
    Ok(lane.summary())
}

/// Few lanes per row and many, rows of vectors and of single elements, positions at the beginning,
/// far on and in a ring; one form of packed weights, whose rows are found in the same way as others'.
async fn heads_of_rows(lane: Rc<Lane>) -> Outcome {
    for (heads, columns, weights) in [
        ((1, 1, 4), 19, WeightFormat::F32),
        ((6, 2, 20), 260, WeightFormat::F32),
        ((3, 3, 32), 96, WeightFormat::Int8),
    ] {
        for (position, ring) in [(0, None), (7, None), (25, Some(ROWS))] {
            newest_row(&lane, heads, columns, weights, (position, ring), false).await?;
        }
    }
    newest_row(&lane, (6, 2, 20), 260, WeightFormat::F32, (7, None), true).await?;
    Ok(lane.summary())
}

async fn newest_row(
    lane: &Lane,
    heads: Heads,
    columns: usize,
    weights: WeightFormat,
    (position, ring): (usize, Option<usize>),
    biased: bool,
) -> Result<(), String> {
    const THETA: f64 = 100.0;
    let (shape, kernel_shape) = shapes(heads, 1);
    let width = shape.qkv_width();
    let matvec = Matvec {
        n: width / 2,
        k: columns,
        first: 0,
        input: MatvecInput::Norm { epsilon: k::Constant(EPSILON) },
        output: (if biased { MatvecOutput::BiasedHeads } else { MatvecOutput::Heads })(CacheRows {
            ring,
            ..kernel_shape.cache()
        }),
        weights,
    };
    let values = matvec_matrix(lane, matvec);
    let (matrix, words) = if weights == WeightFormat::F32 {
        (wide(&values), values.iter().map(|x| x.to_bits()).collect())
    } else {
        let words = weights::packed(lane, weights, (width, columns), &values).await?.swap_remove(0);
        (unpack_weights_forward(weights, &words, values.len()), words)
    };
    let (x, weight) = (lane.normal(columns), lane.normal(columns));
    let normed = rms_norm_forward(&wide(&x), &wide(&weight), EPSILON);
    let bias = biased.then(|| lane.normal(width));
    let mut row = matvec_forward(&normed, &matrix, bias.as_deref().map(wide).as_deref());
    let rope = Rope::plain(shape.head_dim, THETA);
    rope_forward(shape, &mut row, &[0], position, &rope);
    let table: Vec<f32> =
        rope_table(position + 1, &rope).concat().iter().map(|&x| x as f32).collect();
    let angles = &table[position * shape.head_dim..];
    let step = Step { position: position as u32, ..Step::of(1) };
    let mut operands = vec![
        Operand::floats(&x),
        Operand::words(&words),
        Operand::poison(shape.key_offset()),
        Operand::floats(&weight),
        Operand::uniform(&step),
        Operand::floats(angles),
        Operand::poison(ROWS * shape.cache_width()),
    ];
    operands.extend(bias.as_deref().map(Operand::floats));
    let made = matvec_variants(lane, matvec)?;
    let jobs: Vec<_> = made.iter().map(|kernel| Job::new(kernel, 1, operands.clone())).collect();
    for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
        let named = of(&job.kernel);
        let (query, cached) = row.split_at(shape.key_offset());
        close("query", &got.floats(0), query, ROUNDING).map_err(&named)?;
        let mut words = got.words(1).to_vec();
        words.rotate_left(position % ROWS * shape.cache_width());
        let (written, others) = words.split_at(shape.cache_width());
        same("other rows", others, &vec![POISON; others.len()]).map_err(&named)?;
        let written: Vec<f32> = written.iter().map(|&bits| f32::from_bits(bits)).collect();
        close("keys and values", &written, cached, ROUNDING).map_err(&named)?;
    }
    Ok(())
}

/// Holds written rows against the twin's: f32 exactly, f16 to the last bit, bytes to the rounding of
/// their scale and to half a step.
fn appended(
    cache: KvCacheFormat,
    shape: CausalAttention,
    words: &[u32],
    rows: &[f32],
) -> Result<(), String> {
    let twin = packed(cache, shape, rows);
    if cache == KvCacheFormat::F32 {
        return same("cache", words, &twin);
    }
    let (got, twin) = (expanded(cache, shape, words), expanded(cache, shape, &twin));
    let (mut near, mut step) = (vec![], vec![]);
    for x in rows.chunks_exact(shape.head_dim) {
        let most = x.iter().fold(0.0, |most: f64, &x| most.max(f64::from(x.abs())));
        for &x in x {
            // Rounding to the even or towards zero, of the number or of its quotient.
            let of_half = f64::from(x).abs() / 1024.0 + 1e-7;
            near.push(if cache == KvCacheFormat::F16 { of_half } else { most / 253.0 });
            step.push(if cache == KvCacheFormat::F16 { of_half } else { most / 126.0 });
        }
    }
    hold(("kept", cache.name(), [&twin, &near, &step].map(|x| Bits(x))), || {
        for (i, x) in wide(rows).into_iter().enumerate() {
            let (got, twin, error) = (got[i], twin[i], (got[i] - x).abs());
            if error.is_nan() || error > near[i] || (got - twin).abs() > step[i] {
                let (head, i) = (i / shape.head_dim, i % shape.head_dim);
                return Err(format!("head {head}, {i}: {x} kept as {got}, by the twin as {twin}"));
            }
        }
        Ok(())
    })
}

async fn expand(lane: Rc<Lane>, cache: KvCacheFormat) -> Outcome {
    for heads in CACHES {
        for (tokens, position, ring) in
            [(1, 0, None), (5, 40, None), (300, 0, None), (5, 90, Some(20))]
        {
            let (shape, kernel_shape) = shapes(heads, 1);
            let rows_of = CacheRows { ring, ..kernel_shape.cache() };
            let made = lane.variants_of(k::CacheExpand { rows: rows_of, cache }).map_err(text)?;
            let used = ring.unwrap_or(usize::MAX).min(tokens + position);
            let words = packed(cache, shape, &lane.normal((used + 3) * shape.cache_width()));
            let exact = expanded(cache, shape, &words);
            let operands = [
                Operand::poison(exact.len()),
                Operand::words(&words),
                Operand::uniform(&Step { position: position as u32, ..Step::of(tokens) }),
            ];
            let jobs: Vec<_> =
                made.iter().map(|kernel| Job::new(kernel, tokens, operands.to_vec())).collect();
            let len = used * shape.cache_width();
            for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
                let named = of(&job.kernel);
                close("rows", &got.floats(0)[..len], &exact[..len], 1e-7).map_err(&named)?;
                let rest = &got.words(0)[len..];
                same("rows not in use", rest, &vec![POISON; rest.len()]).map_err(&named)?;
            }
        }
    }
    Ok(lane.summary())
}

/// The cache of a text of `rows` as a ring keeps it: the positions from `first` on, all else NaN.
pub(crate) fn ring_of(shape: CausalAttention, rows: &[f32], first: usize, ring: usize) -> Vec<f32> {
    let width = shape.cache_width();
    let mut cache = vec![f32::NAN; ring * width];
    for (position, row) in rows.chunks_exact(width).enumerate().skip(first) {
        cache[position % ring * width..][..width].copy_from_slice(row);
    }
    cache
}

/// Chunks at the beginning of a text, one row past the ring's end, across it, and far after it.
async fn prefill(lane: Rc<Lane>, setting: Setting) -> Outcome {
    const CHUNK: usize = 70;
    let window = setting.window.ok_or("a ring needs a window")?;
    let ring = ring_rows(window, CHUNK);
    let made = lane.variants_of(prefill_of(setting.cached(Some(ring)))).map_err(text)?;
    for (position, tokens) in [(0, 5), (ring, 1), (ring - 10, 33), (1000, CHUNK)] {
        let shape = setting.twin(tokens);
        let qkv = lane.normal(tokens * shape.qkv_width());
        let rows = lane.normal((position + tokens) * shape.cache_width());
        let cache = ring_of(shape, &rows, (position + 1).saturating_sub(window), ring);
        let expected = attention_prefill(shape, &wide(&qkv), &wide(&rows), position);
        let what = format!("{tokens} rows behind {position} in a ring of {ring}");
        prefill_close(&lane, &what, &made, shape, position, [&qkv, &cache], &expected).await?;
    }
    Ok(lane.summary())
}
