//! Twins of the packed key-value caches: f16, and signed bytes with a scale per head.

use super::{CacheAppend, CacheExpand};
use crate::error::Result;
use crate::format::KvCacheFormat;
use crate::kernels::attention::twin::causal::CausalAttention;
use crate::kernels::attention::twin::twin;
use crate::kernels::shape::CacheRows;
use crate::twins::{Operands, Twin, cast};
use half::f16;
use std::ops::Range;

/// Rows `k heads | v heads` as words of two f16 each: NaN where one of the two is beyond f16.
pub fn cache_append_f16(rows: &[f32]) -> Vec<u32> {
    let held = |pair: &[f32]| pair.iter().all(|x| x.abs() <= 65504.0);
    let bits = |x: f32| u32::from(f16::from_f32(x).to_bits());
    let word = |pair: &[f32]| match held(pair) {
        true => bits(pair[0]) | bits(pair[1]) << 16,
        false => 0x7e00_7e00,
    };
    rows.chunks_exact(2).map(word).collect()
}

/// What [`cache_append_f16`] kept.
pub fn cache_expand_f16(words: &[u32]) -> Vec<f64> {
    let half = |bits: u32| f16::from_bits(bits as u16).to_f64();
    words.iter().flat_map(|&word| [half(word & 0xffff), half(word >> 16)]).collect()
}

/// Rows `k heads | v heads` as words of four signed bytes each, and after those of a row the scale of each head as f32:
/// the largest magnitude over 127.
pub fn cache_append_int8(shape: CausalAttention, rows: &[f32]) -> Vec<u32> {
    let mut words = vec![];
    for row in rows.chunks_exact(shape.cache_width()) {
        let mut scales = vec![];
        for head in row.chunks_exact(shape.head_dim) {
            let scale = head.iter().fold(0.0, |most: f32, x| most.max(x.abs())) / 127.0;
            let byte = |x: f32| if scale > 0.0 { (x / scale).round_ties_even() as i8 } else { 0 };
            words.extend(head.chunks_exact(4).map(|four| {
                u32::from_le_bytes([0, 1, 2, 3].map(|i| byte(four[i]).to_le_bytes()[0]))
            }));
            scales.push(scale.to_bits());
        }
        words.extend(scales);
    }
    words
}

/// What [`cache_append_int8`] kept.
pub fn cache_expand_int8(shape: CausalAttention, words: &[u32]) -> Vec<f64> {
    let bytes = shape.cache_width() / 4;
    let mut rows = vec![];
    for row in words.chunks_exact(bytes + 2 * shape.n_kv_heads) {
        let (row, scales) = row.split_at(bytes);
        for (head, &scale) in row.chunks_exact(shape.head_dim / 4).zip(scales) {
            let scale = f64::from(f32::from_bits(scale));
            let four = |word: &u32| word.to_le_bytes().map(|b| f64::from(b as i8) * scale);
            rows.extend(head.iter().flat_map(four));
        }
    }
    rows
}

/// The row of the cache that a position has.
pub(crate) fn cache_row(shape: &CacheRows, position: usize) -> usize {
    shape.ring.map_or(position, |ring| position % ring)
}

/// Positions of a cache in f32: key heads | value heads.
pub(crate) fn cached(
    shape: &CacheRows,
    cache: KvCacheFormat,
    words: &[u32],
    rows: Range<usize>,
) -> Result<Vec<f32>> {
    let width = shape.shape.row_words(cache);
    let kept: Vec<u32> = rows
        .flat_map(|position| words[cache_row(shape, position) * width..][..width].iter().copied())
        .collect();
    Ok(match cache {
        KvCacheFormat::F32 => kept.into_iter().map(f32::from_bits).collect(),
        KvCacheFormat::F16 => cast(&cache_expand_f16(&kept)),
        KvCacheFormat::Int8 => cast(&cache_expand_int8(twin(&shape.shape, 1), &kept)),
    })
}

/// The position of the newest row of each of several texts, and its first row in the cache.
pub(crate) fn several(on: &Operands, rows: usize) -> Result<Vec<(usize, usize)>> {
    let (documents, each) = (on.u32("documents")?, on.step()?.reserved[0] as usize);
    let position = |t: usize| (t as u32).wrapping_sub(documents[t]) as usize;
    Ok((0..rows).map(|t| (position(t), t * each)).collect())
}

impl Twin for CacheAppend {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Self { rows, cache, batched } = self;
        if *batched {
            let places = several(on, on.tokens()?)?;
            return append_at(on, rows, *cache, |t| places[t].1 + cache_row(rows, places[t].0));
        }
        let position = on.step()?.position as usize;
        append_at(on, rows, *cache, |t| cache_row(rows, position + t))
    }
}

fn append_at(
    on: &mut Operands,
    shape: &CacheRows,
    cache: KvCacheFormat,
    row_of: impl Fn(usize) -> usize,
) -> Result<()> {
    let shape = shape.shape;
    let step = on.step()?;
    let rows = on.first("qkv", step.tokens as usize * shape.stride())?;
    let key_value: Vec<f32> =
        rows.chunks(shape.stride()).flat_map(|row| row[shape.key_offset()..].to_vec()).collect();
    let words = match cache {
        KvCacheFormat::F32 => key_value.iter().map(|x| x.to_bits()).collect(),
        KvCacheFormat::F16 => cache_append_f16(&key_value),
        KvCacheFormat::Int8 => cache_append_int8(twin(&shape, 1), &key_value),
    };
    let width = shape.row_words(cache);
    let kept = on.u32_mut("cache")?;
    for (t, row) in words.chunks(width).enumerate() {
        let at = row_of(t) * width;
        kept[at..at + width].copy_from_slice(row);
    }
    Ok(())
}

impl Twin for CacheExpand {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Self { rows, cache } = self;
        let step = on.step()?;
        let seen = (step.position + step.tokens) as usize;
        let in_use = rows.ring.map_or(seen, |ring| seen.min(ring));
        // Where the cache is a ring its rows stay where they are.
        let rows = cached(rows, *cache, on.u32("cache")?, 0..in_use)?;
        on.write("rows", 0, &rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::twins::check::{assert_close, noise};

    const SHAPE: CausalAttention = CausalAttention::new(4, 2, 8, 3);

    #[test]
    fn halves_keep_eleven_bits() {
        let rows = noise::<f32>(1, 3 * SHAPE.cache_width());
        let kept = cache_expand_f16(&cache_append_f16(&rows));
        for (x, y) in rows.iter().zip(kept) {
            assert!((f64::from(*x) - y).abs() <= f64::from(x.abs()) / 2048.0 + 1e-7, "{x} as {y}");
        }
        let kept = cache_expand_f16(&cache_append_f16(&[65504.0, -65504.0, 1.0, -65505.0]));
        assert!(kept[..2] == [65504.0, -65504.0] && kept[2..].iter().all(|x| x.is_nan()));
    }

    #[test]
    fn bytes_keep_half_a_step_and_zeros() {
        let mut rows = noise::<f32>(2, 3 * SHAPE.cache_width());
        rows[8..16].fill(0.0);
        let words = cache_append_int8(SHAPE, &rows);
        assert_eq!(words.len(), 3 * (SHAPE.cache_width() / 4 + 4));
        let kept = cache_expand_int8(SHAPE, &words);
        assert_eq!(kept[8..16], [0.0; 8]);
        for (head, kept) in rows.chunks(8).zip(kept.chunks(8)) {
            let most = head.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
            assert_close("head", head, kept, f64::from(most) / 253.0, 0.0);
        }
    }
}
