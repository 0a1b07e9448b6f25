//! Decode attention over the key-value cache, and the merge of its ranges.

use super::Seen;
use super::causal::{PartialSoftmax, attention_decode_merge};
use crate::error::{Error, Result};
use crate::kernels::attention::{
    AttentionDecode, AttentionDecodeMerge, AttentionDecodeQkv, DecodeOver, DecodePartials,
};
use crate::kernels::cache::twin::{cached, several};
use crate::kernels::linear::twin::rows::{matrix_of_rows, to_heads};
use crate::kernels::linear::twin::{bias_forward, matvec_forward};
use crate::kernels::norm::twin::rms_norm_forward;
use crate::kernels::{
    AttentionShape, CacheAttention, DecodeQkvShape, KvCacheFormat, NewKey, PARTIAL_STATE,
    RANGE_KEYS,
};
use crate::twins::{Operands, Twin, dot};
use std::f32::consts::LOG2_E;
use std::ops::Range;

/// The keys that the row at a position sees.
fn seen(window: Option<usize>, position: usize) -> Range<usize> {
    let end = position + 1;
    end.saturating_sub(window.unwrap_or(end))..end
}

/// The keys that a row sees, without its own.
fn seen_before(attention: &CacheAttention, position: usize) -> Range<usize> {
    let Range { start, end } = seen(attention.window, position);
    start..end - 1
}

/// Keys in at most `splits` ranges.
fn ranges(seen: Range<usize>, splits: usize) -> Vec<Range<usize>> {
    if splits == 1 {
        return vec![seen];
    }
    let even = seen.len().div_ceil(splits);
    let length = even.div_ceil(RANGE_KEYS).max(1) * RANGE_KEYS;
    let range = |first: usize| first..seen.end.min(first + length);
    seen.clone().step_by(length).map(range).collect()
}

/// The position of a newest row, and the row of the cache where its text begins.
type NewestRow = (usize, usize);

/// The attention of newest rows to a cache, with the place of each.
fn newest_rows(
    on: &Operands,
    over: &DecodeOver,
) -> Result<(CacheAttention, KvCacheFormat, Vec<NewestRow>)> {
    match *over {
        DecodeOver::Cache(attention, cache) => {
            Ok((attention, cache, vec![(on.step()?.position as usize, 0)]))
        }
        DecodeOver::Rows(attention, cache, rows) => Ok((attention, cache, several(on, rows)?)),
        DecodeOver::Tensors(..) => Err(no_tensors()),
    }
}

fn no_tensors() -> Error {
    Error::internal("the CPU double has no twin of decoding over tensors")
}

/// One range gives the output. Several give partial results: the sum of values, the largest score in base 2 and the sum
/// of weights.
impl Twin for AttentionDecode {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let (attention, cache, rows) = newest_rows(on, &self.over)?;
        for (row, (position, first)) in rows.into_iter().enumerate() {
            let keys = (seen(attention.window, position), first);
            decode_row(on, &attention, cache, (self.splits.count, row), keys)?;
        }
        Ok(())
    }
}

/// One row's, whose text begins at a row of the cache.
fn decode_row(
    on: &mut Operands,
    attention: &CacheAttention,
    cache: KvCacheFormat,
    (splits, row): (usize, usize),
    (keys, first): (Range<usize>, usize),
) -> Result<()> {
    let (of, shape, kept) = (attention.causal(1), &attention.shape, attention.cache());
    let base = first * shape.row_words(cache);
    for (split, range) in ranges(keys, splits).into_iter().enumerate() {
        let rows = cached(&kept, cache, &on.u32("cache")?[base..], range)?;
        let seen = Seen::of_cache(shape, rows);
        for head in 0..shape.heads {
            let at = row * shape.stride() + head * shape.head_dim;
            let query = on.f32("query")?[at..][..shape.head_dim].to_vec();
            let [keys, values] = seen.heads(of.kv_head(head));
            let part = (0..seen.len()).fold(PartialSoftmax::empty(shape.head_dim), |sum, k| {
                let largest = of.score(dot(&query, keys.row(k))).0 * LOG2_E;
                let own = PartialSoftmax { sum: values.row(k).to_vec(), largest, total: 1.0 };
                attention_decode_merge(&sum, &own)
            });
            let head = row * shape.heads + head;
            if splits == 1 {
                on.write("output", head * shape.head_dim, &result(&part))?;
            } else {
                let at = (head * splits + split) * (shape.head_dim + PARTIAL_STATE);
                on.write("partials", at, &part.sum)?;
                let state = [part.largest, part.total, 0.0, 0.0];
                on.write("partials", at + shape.head_dim, &state)?;
            }
        }
    }
    Ok(())
}

fn result(part: &PartialSoftmax<f32>) -> Vec<f32> {
    let total = if part.total > 0.0 { part.total } else { 1.0 };
    part.sum.iter().map(|x| x / total).collect()
}

impl Twin for AttentionDecodeMerge {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let shape = self.of.shape();
        let (window, positions) = match self.of {
            DecodePartials::Cache(_, window) => (window, vec![on.step()?.position as usize]),
            DecodePartials::Rows(_, window, rows) => {
                (window, several(on, rows)?.into_iter().map(|(position, _)| position).collect())
            }
            DecodePartials::Tensors(..) => return Err(no_tensors()),
        };
        for (row, position) in positions.into_iter().enumerate() {
            let keys = seen(window, position);
            let parts = merged_row(on, &shape, self.splits.count, (row, keys))?;
            let output: Vec<f32> = parts.iter().flat_map(result).collect();
            on.write("output", row * shape.width(), &output)?;
        }
        Ok(())
    }
}

/// The heads of the newest row that ranges have left, and perhaps a key apart.
pub(crate) fn merged(
    on: &Operands,
    attention: &CacheAttention,
    splits: usize,
    newest: NewKey,
) -> Result<Vec<f32>> {
    let shape = &attention.shape;
    let position = on.step()?.position as usize;
    if newest == NewKey::Among {
        let parts = merged_row(on, shape, splits, (0, seen(attention.window, position)))?;
        return Ok(parts.iter().flat_map(result).collect());
    }
    let of = attention.causal(1);
    let mut parts = merged_row(on, shape, splits, (0, seen_before(attention, position)))?;
    let own =
        cached(&attention.cache(), KvCacheFormat::F32, on.u32("cache")?, position..position + 1)?;
    let own = Seen::of_cache(shape, own);
    for (head, part) in parts.iter_mut().enumerate() {
        let query = &on.f32("query")?[head * shape.head_dim..][..shape.head_dim];
        let [keys, values] = own.heads(of.kv_head(head));
        let largest = of.score(dot(query, keys.row(0))).0 * LOG2_E;
        let key = PartialSoftmax { sum: values.row(0).to_vec(), largest, total: 1.0 };
        *part = attention_decode_merge(part, &key);
    }
    Ok(parts.iter().flat_map(result).collect())
}

fn merged_row(
    on: &Operands,
    shape: &AttentionShape,
    splits: usize,
    (row, keys): (usize, Range<usize>),
) -> Result<Vec<PartialSoftmax<f32>>> {
    let (count, each) = (ranges(keys, splits).len(), shape.head_dim + PARTIAL_STATE);
    let mut output = vec![];
    for head in row * shape.heads..(row + 1) * shape.heads {
        let partials = &on.f32("partials")?[head * splits * each..][..count * each];
        let part = |data: &[f32]| PartialSoftmax {
            sum: data[..shape.head_dim].to_vec(),
            largest: data[shape.head_dim],
            total: data[shape.head_dim + 1],
        };
        let parts = partials.chunks(each).map(part);
        let whole = parts
            .fold(PartialSoftmax::empty(shape.head_dim), |a, b| attention_decode_merge(&a, &b));
        output.push(whole);
    }
    Ok(output)
}

/// The newest row's heads, and its queries over the keys before it.
impl Twin for AttentionDecodeQkv {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let DecodeQkvShape { heads: attention, k, epsilon, biased, weights } = self.shape;
        let heads = attention.shape;
        let rows = heads.stride();
        let matrix = matrix_of_rows(on, weights, (rows, k))?;
        let a = rms_norm_forward(on.first("a", k)?, on.first("norm_weight", k)?, epsilon.0);
        let mut row = matvec_forward(&a, &matrix, None);
        if biased {
            bias_forward(&mut row, on.first("bias", rows)?);
        }
        let position = on.step()?.position as usize;
        to_heads(on, &attention.cache(), row, ["query", "angles"], (position, [0, 0]))?;
        let before = (seen_before(&attention, position), 0);
        decode_row(on, &attention, KvCacheFormat::F32, (self.splits.count, 0), before)
    }
}
