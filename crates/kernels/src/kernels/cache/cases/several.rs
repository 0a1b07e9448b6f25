//! Caches of rows that are of texts of their own: what is appended, and attention over it.

use crate::kernels::attention::cases::decode::{Heads, expanded, forms, packed, ranges, shapes};
use crate::kernels::attention::cases::forward::SOFTMAX;
use crate::kernels::attention::twin::causal::attention_decode;
use crate::kernels::linear::cases::several::{ROWS, documents, several};
use crate::kernels::rope::twin::cache_append_forward;
use crate::kernels::{self as k, KvCacheFormat, PARTIAL_STATE};
use crate::testing::harness::{Job, Operand, POISON};
use crate::testing::lane::Lane;
use crate::testing::measure::{close, hold, of, same, text, wide};
use crate::testing::{Case, Outcome};
use std::rc::Rc;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for cache in KvCacheFormat::ALL {
        let name = cache.name();
        let append = move |lane| append(lane, cache);
        cases.push(Case::new(format!("cache_append of several texts, {name}"), append));
        let decode = move |lane| decode(lane, cache);
        cases.push(Case::new(format!("attention decode of several texts, {name} cache"), decode));
    }
    cases
}

async fn append(lane: Rc<Lane>, cache: KvCacheFormat) -> Outcome {
    for heads in [(1, 1, 4), (6, 2, 20)] {
        // Texts of their own; four rows of one text; texts whose caches have begun anew.
        for (positions, stride, ring) in
            [([0, 8, 3, 5], ROWS, None), ([2, 3, 4, 5], 0, None), ([25, 0, 9, 8], ROWS, Some(ROWS))]
        {
            let rows = positions.len();
            let (shape, kernel_shape) = shapes(heads, 1);
            let of_cache = k::CacheRows { ring, ..kernel_shape.cache() };
            let made = lane
                .variants_of(k::CacheAppend { rows: of_cache, cache, batched: true })
                .map_err(text)?;
            let qkv = lane.normal(rows * shape.qkv_width());
            let words = kernel_shape.shape.row_words(cache);
            let mut expected = vec![POISON; rows * ROWS * words];
            for (t, (row, position)) in qkv.chunks(shape.qkv_width()).zip(positions).enumerate() {
                let mut kept = vec![0.0f32; shape.cache_width()];
                cache_append_forward(shape, row, &mut kept, 0);
                let at = (t * stride + position % ROWS) * words;
                expected[at..at + words].copy_from_slice(&packed(cache, shape, &kept));
            }
            let operands = [
                Operand::floats(&qkv),
                Operand::poison(expected.len()),
                Operand::uniform(&several(rows, stride)),
                Operand::words(&documents(&positions)),
            ];
            let jobs: Vec<_> =
                made.iter().map(|kernel| Job::new(kernel, rows, operands.to_vec())).collect();
            for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
                rows_close(cache, got.words(0), &expected, words).map_err(of(&job.kernel))?;
            }
        }
    }
    Ok(lane.summary())
}

/// Rows that are written where they should be and nowhere else: f32 exactly, others to a step of rounding.
fn rows_close(
    cache: KvCacheFormat,
    got: &[u32],
    expected: &[u32],
    words: usize,
) -> Result<(), String> {
    if cache == KvCacheFormat::F32 {
        return same("cache", got, expected);
    }
    let parts = if cache == KvCacheFormat::F16 { 2 } else { 4 };
    let each = || near_rows(parts, got.chunks(words).zip(expected.chunks(words)));
    hold(("rows", parts, words, expected), each)
}

fn near_rows<'a>(
    parts: u32,
    rows: impl Iterator<Item = (&'a [u32], &'a [u32])>,
) -> Result<(), String> {
    for (row, (got, expected)) in rows.enumerate() {
        if (expected[0] == POISON) != (got[0] == POISON) {
            return Err(format!("row {row} is written wrongly"));
        }
        for (got, expected) in got.iter().zip(expected) {
            // The parts of a word of bytes or halves, or a scale: each at most one off in the last place.
            let bits = 32 / parts;
            let part = |word: u32, i: u32| i64::from(word >> (i * bits)) & ((1 << bits) - 1);
            let near = (0..parts).all(|i| {
                let off = (part(*got, i) - part(*expected, i)).rem_euclid(1 << bits);
                off <= 1 || off == (1 << bits) - 1
            });
            if !near && got.abs_diff(*expected) > 2 {
                return Err(format!("row {row} has {got:#x} where {expected:#x} should be"));
            }
        }
    }
    Ok(())
}

/// Texts of one key and of many, with NaN after each. The rows of one text.
async fn decode(lane: Rc<Lane>, cache: KvCacheFormat) -> Outcome {
    let heads: &[Heads] =
        if cache == KvCacheFormat::F32 { &[(3, 1, 4), (4, 2, 64)] } else { &[(4, 2, 64)] };
    for &heads in heads {
        for (keys, stride, count) in [
            ([1, 64, 130, 7], 150, 1),
            ([65, 1, 130, 64], 150, 3),
            ([40, 41, 42, 43], 0, 1),
            ([127, 128, 129, 130], 0, 2),
        ] {
            attend(&lane, heads, cache, keys, (stride, count)).await?;
        }
    }
    Ok(lane.summary())
}

async fn attend(
    lane: &Lane,
    heads: Heads,
    cache: KvCacheFormat,
    keys: [usize; 4],
    (stride, count): (usize, usize),
) -> Result<(), String> {
    let (shape, kernel_shape) = shapes(heads, 1);
    let (rows, words) = (keys.len(), kernel_shape.shape.row_words(cache));
    let query = lane.normal(rows * shape.qkv_width());
    let longest = *keys.iter().max().unwrap_or(&1);
    let mut all = vec![u32::MAX; (rows * stride).max(longest + 5) * words];
    let mut expected = vec![];
    let whole = packed(cache, shape, &lane.normal(longest * shape.cache_width()));
    for (row, &seen) in keys.iter().enumerate() {
        let own = if stride == 0 {
            whole.clone()
        } else {
            packed(cache, shape, &lane.normal(seen * shape.cache_width()))
        };
        all[row * stride * words..][..own.len()].copy_from_slice(&own);
        let kept = expanded(cache, shape, &own[..seen * words]);
        let q = wide(&query[row * shape.qkv_width()..][..shape.qkv_width()]);
        expected.extend(attention_decode(shape, &q, &kept, seen));
    }
    let places = documents(&keys.map(|seen| seen - 1));
    let step = several(rows, stride);
    let splits = ranges(count);
    let over = k::DecodeOver::Rows(kernel_shape, cache, rows);
    let decode = k::AttentionDecode { over, splits };
    let made = lane.variants_of(decode).map_err(text)?;
    let width = if count == 1 { shape.head_dim } else { count * (shape.head_dim + PARTIAL_STATE) };
    let operands = [
        Operand::floats(&query),
        Operand::words(&all),
        Operand::words(&places),
        Operand::poison(rows * shape.n_heads * width),
        Operand::uniform(&step),
    ];
    let jobs: Vec<_> =
        forms(made).iter().map(|kernel| Job::new(kernel, rows, operands.to_vec())).collect();
    for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
        if count == 1 {
            close("texts", &got.floats(0), &expected, SOFTMAX).map_err(of(&job.kernel))?;
            continue;
        }
        let merge = k::AttentionDecodeMerge { of: over.partials(), splits };
        let merges = lane.variants_of(merge).map_err(text)?;
        let operands = [
            Operand::words(got.words(0)),
            Operand::words(&places),
            Operand::poison(expected.len()),
            Operand::uniform(&step),
        ];
        let merging: Vec<_> =
            forms(merges).iter().map(|kernel| Job::new(kernel, rows, operands.to_vec())).collect();
        for (job, got) in merging.iter().zip(lane.run(&merging).await.map_err(text)?) {
            close("texts", &got.floats(0), &expected, SOFTMAX).map_err(of(&job.kernel))?;
        }
    }
    Ok(())
}
