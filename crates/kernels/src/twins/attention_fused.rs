//! Attention on the fused rows of a batch or of a text, and the key-value cache.

use super::operands::Operands;
use crate::error::Result;
use crate::format::Element;
use crate::kernels::cache::twin::{cached, several};
use crate::kernels::dropout::twin::{KeyDropout, Masks};
use crate::kernels::linear::twin::rows::{matrix_of_rows, to_heads};
use crate::kernels::linear::twin::{bias_forward, matvec_forward};
use crate::kernels::norm::twin::rms_norm_forward;
use crate::kernels::rope::twin::rotated;
use crate::kernels::{
    AttentionShape, KeyValueOwner, KvCache, NewestKey, NewestShape, PARTIAL_STATE, Parts,
    RANGE_KEYS, RopeShape,
};
use crate::twins::attention::{self as twins, Head, Part, attend_kept, attention_decode_merge};
use crate::twins::attention_rows::Pass;
use crate::twins::{add_assign, dot};
use std::f32::consts::LOG2_E;
use std::ops::Range;

/// The shape as the twins know it, for so many rows.
pub fn twin(shape: &AttentionShape, tokens: usize) -> Result<twins::AttentionShape> {
    Ok(twins::AttentionShape {
        n_heads: shape.heads,
        n_kv_heads: shape.kv_heads,
        head_dim: shape.head_dim,
        tokens,
        window: shape.window,
        soft_cap: shape.soft_cap.map(f64::from),
        scale: shape.scale.map(f64::from),
        dropout: None,
    })
}

/// The same with the masks of the step's dropout.
fn dropped(on: &Operands, shape: &AttentionShape, tokens: usize) -> Result<twins::AttentionShape> {
    let mut of = twin(shape, tokens)?;
    if let Some(rate) = shape.dropout {
        let step = on.step()?;
        let masks = Masks { seed: step.reserved, micro_step: step.draws };
        let place = on.range()?.col0 as usize;
        of.dropout = Some(KeyDropout { rate: rate.0, place, masks, tokens });
    }
    Ok(of)
}

/// Keys and values that a query sees, one row after the other: key heads | value heads.
struct Seen {
    rows: Vec<f32>,
    width: usize,
    value_offset: usize,
    head_dim: usize,
}

impl Seen {
    fn of_cache(shape: &AttentionShape, rows: Vec<f32>) -> Self {
        let value_offset = shape.kv_heads * shape.head_dim;
        let (width, head_dim) = (shape.cache_stride(), shape.head_dim);
        Self { rows, width, value_offset, head_dim }
    }

    fn heads(&self, kv_head: usize) -> [Head<'_, f32>; 2] {
        [0, self.value_offset].map(|offset| Head {
            data: &self.rows,
            stride: self.width,
            offset: offset + kv_head * self.head_dim,
            head_dim: self.head_dim,
        })
    }

    fn len(&self) -> usize {
        self.rows.len() / self.width
    }
}

pub(crate) fn forward(on: &mut Operands, shape: &AttentionShape, cached_keys: bool) -> Result<()> {
    let step = on.step()?;
    let (tokens, position) = (step.tokens as usize, step.position as usize);
    let of = dropped(on, shape, tokens)?;
    let documents = on.u32("documents")?.to_vec();
    let element = if shape.halves.qkv { Element::F16 } else { Element::F32 };
    let query = on.read_as("query", element)?;
    let mut output = vec![0.0; tokens * shape.width()];
    for (t, &start) in documents[..tokens].iter().enumerate() {
        let keys = of.keys(start as usize, position + t);
        let rows = if cached_keys {
            cached(shape, KvCache::F32, on.u32("keys")?, keys)?
        } else {
            let own = |k: usize| query[k * shape.stride()..][..shape.stride()].to_vec();
            keys.flat_map(|k: usize| own(k).split_off(shape.key_offset())).collect()
        };
        let (seen, first) =
            (Seen::of_cache(shape, rows), of.keys(start as usize, position + t).start);
        for head in 0..shape.heads {
            let at = t * shape.stride() + head * shape.head_dim;
            let mut out = vec![0.0; shape.head_dim];
            let [k, v] = seen.heads(of.kv_head(head));
            let score = |x| of.score(x).0;
            let kept = |key| of.kept(head, t, first + key);
            let query = &query[at..][..shape.head_dim];
            let lse = attend_kept(query, k, v, 0..seen.len(), score, kept, &mut out);
            let place = t * shape.width() + head * shape.head_dim;
            output[place..place + shape.head_dim].copy_from_slice(&out);
            on.write("lse", t * shape.heads + head, &[lse])?;
        }
    }
    on.write_as("output", &output, shape.halves.output)
}

pub(crate) fn probabilities(on: &mut Operands, shape: &AttentionShape) -> Result<()> {
    let step = on.step()?;
    let (tokens, position) = (step.tokens as usize, step.position as usize);
    let head = on.u32("probe")?[0] as usize;
    let of = twin(shape, tokens)?;
    let (query, columns) = (on.f32("query")?.to_vec(), position + tokens);
    let lse = on.f32("lse")?.to_vec();
    for t in 0..tokens {
        let keys = of.keys(on.u32("documents")?[t] as usize, position + t);
        let rows = cached(shape, KvCache::F32, on.u32("keys")?, keys.clone())?;
        let seen = Seen::of_cache(shape, rows);
        let [k, _] = seen.heads(of.kv_head(head));
        let query = &query[t * shape.stride() + head * shape.head_dim..][..shape.head_dim];
        let mut row = vec![0.0; columns];
        for (i, share) in row[keys].iter_mut().enumerate() {
            *share = (of.score(dot(query, k.row(i))).0 - lse[t * shape.heads + head]).exp();
        }
        on.write("probabilities", t * columns, &row)?;
    }
    Ok(())
}

pub(crate) fn delta(on: &mut Operands, shape: &AttentionShape, parts: Parts) -> Result<()> {
    let all = on.tokens()? * shape.width();
    let output = on.read_as("output", Element::halved(shape.halves.output))?;
    let d_output = if parts == Parts::WHOLE {
        on.read_as("d_output", Element::halved(shape.halves.d_output))?
    } else {
        let sum = on.sum_of("d_output", all, parts)?;
        on.write("whole", 0, &sum)?;
        sum
    };
    let heads = output[..all].chunks(shape.head_dim).zip(d_output[..all].chunks(shape.head_dim));
    let delta: Vec<f32> = heads.map(|(o, d)| dot(o, d)).collect();
    on.write("delta", 0, &delta)
}

/// Runs `each` on what the forward pass has left.
fn backward<T>(
    on: &Operands,
    shape: &AttentionShape,
    each: impl FnOnce(Pass<'_, f32>) -> T,
) -> Result<T> {
    let tokens = on.tokens()?;
    let qkv = on.read_as("qkv", Element::halved(shape.halves.qkv))?;
    let d_out = on.read_as("d_output", Element::halved(shape.halves.d_output))?;
    Ok(each(Pass {
        shape: dropped(on, shape, tokens)?,
        qkv: &qkv[..tokens * shape.stride()],
        documents: on.u32("documents")?,
        lse: on.first("lse", tokens * shape.heads)?,
        delta: on.first("delta", tokens * shape.heads)?,
        d_out: &d_out[..tokens * shape.width()],
    }))
}

pub(crate) fn backward_query(on: &mut Operands, shape: &AttentionShape) -> Result<()> {
    let rows: Vec<Vec<f32>> = backward(on, shape, |pass| {
        let row = |s| (0..shape.heads).flat_map(|head| pass.d_query(head, s)).collect();
        (0..pass.shape.tokens).map(row).collect()
    })?;
    let element = Element::halved(shape.halves.d_qkv);
    for (s, mut row) in rows.into_iter().enumerate() {
        turned_back(on, shape, &mut row, s)?;
        on.write_at("gradient", s * shape.stride(), &row, element)?;
    }
    Ok(())
}

/// Turns the gradients of a row's heads back, where the kernel does.
pub(crate) fn turned_back(
    on: &Operands,
    shape: &AttentionShape,
    heads: &mut [f32],
    row: usize,
) -> Result<()> {
    if !shape.turned {
        return Ok(());
    }
    let (head_dim, stride) = (shape.head_dim, heads.len());
    let of = RopeShape { heads: stride / head_dim, head_dim, dims: head_dim, stride };
    let position = (on.step()?.position as usize + row) - on.u32("documents")?[row] as usize;
    rotated(heads, of, on.f32("table")?, |_| position, false);
    Ok(())
}

pub(crate) fn backward_key_value(
    on: &mut Operands,
    shape: &AttentionShape,
    owner: KeyValueOwner,
) -> Result<()> {
    let group = shape.heads / shape.kv_heads;
    let (members, stride, key, value) = match owner {
        KeyValueOwner::Group => (group, shape.stride(), shape.key_offset(), shape.value_offset()),
        KeyValueOwner::Head => (1, 2 * shape.width(), 0, shape.width()),
    };
    let owners = shape.heads / members;
    let element = Element::halved(shape.halves.d_qkv && owner == KeyValueOwner::Group);
    let gradients: Vec<[Vec<f32>; 2]> = backward(on, shape, |pass| {
        let of = |i: usize| {
            let first = i % owners * members;
            pass.d_key_value_of(first..first + members, i / owners)
        };
        (0..pass.shape.tokens * owners).map(of).collect()
    })?;
    for (i, [mut d_key, d_value]) in gradients.into_iter().enumerate() {
        let at = i / owners * stride + i % owners * shape.head_dim;
        turned_back(on, shape, &mut d_key, i / owners)?;
        on.write_at("gradient", at + key, &d_key, element)?;
        on.write_at("gradient", at + value, &d_value, element)?;
    }
    Ok(())
}

pub(crate) fn group_sum(on: &mut Operands, shape: &AttentionShape) -> Result<()> {
    let (tokens, group) = (on.tokens()?, shape.heads / shape.kv_heads);
    let parts = on.first("parts", tokens * 2 * shape.width())?.to_vec();
    let target = if shape.turned { "rows" } else { "d_qkv" };
    for (i, members) in parts.chunks(group * shape.head_dim).enumerate() {
        let mut sum = vec![0.0; shape.head_dim];
        members.chunks(shape.head_dim).for_each(|part| add_assign(&mut sum, part));
        let (row, head) = (i / (2 * shape.kv_heads), i % (2 * shape.kv_heads));
        let at = row * shape.stride() + shape.key_offset() + head * shape.head_dim;
        on.write_at(target, at, &sum, Element::halved(shape.halves.d_qkv))?;
    }
    if !shape.turned {
        return Ok(());
    }
    for row in 0..tokens {
        let at = row * shape.stride();
        let mut heads = on.f32(target)?[at..][..shape.value_offset()].to_vec();
        turned_back(on, shape, &mut heads, row)?;
        on.write(target, at, &heads)?;
    }
    Ok(())
}

/// The keys that the row at a position sees.
fn seen(shape: &AttentionShape, position: usize) -> Result<Range<usize>> {
    Ok(twin(shape, 1)?.keys(0, position))
}

/// The same without the row's own.
fn seen_before(shape: &AttentionShape, position: usize) -> Result<Range<usize>> {
    let Range { start, end } = seen(shape, position)?;
    Ok(start..end - 1)
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

/// Of one range the output; of several partial results, each the sum of values, the largest score in base
/// 2 and the sum of weights.
pub(crate) fn decode(
    on: &mut Operands,
    shape: &AttentionShape,
    cache: KvCache,
    splits: usize,
) -> Result<()> {
    let position = on.step()?.position as usize;
    decode_row(on, shape, cache, (splits, 0), (seen(shape, position)?, 0))
}

/// [`decode`] over the keys before the row's own.
pub(crate) fn decode_before(
    on: &mut Operands,
    shape: &AttentionShape,
    splits: usize,
) -> Result<()> {
    let position = on.step()?.position as usize;
    decode_row(on, shape, KvCache::F32, (splits, 0), (seen_before(shape, position)?, 0))
}

/// The same of each of several rows, over its own text.
pub(crate) fn decode_several(
    on: &mut Operands,
    shape: &AttentionShape,
    cache: KvCache,
    (splits, rows): (usize, usize),
) -> Result<()> {
    for (row, (position, first)) in several(on, rows)?.into_iter().enumerate() {
        decode_row(on, shape, cache, (splits, row), (seen(shape, position)?, first))?;
    }
    Ok(())
}

/// One row's, whose text begins at a row of the cache.
fn decode_row(
    on: &mut Operands,
    shape: &AttentionShape,
    cache: KvCache,
    (splits, row): (usize, usize),
    (keys, first): (Range<usize>, usize),
) -> Result<()> {
    let of = twin(shape, 1)?;
    let base = first * shape.row_words(cache);
    for (split, range) in ranges(keys, splits).into_iter().enumerate() {
        let rows = cached(shape, cache, &on.u32("cache")?[base..], range)?;
        let seen = Seen::of_cache(shape, rows);
        for head in 0..shape.heads {
            let at = row * shape.stride() + head * shape.head_dim;
            let query = on.f32("query")?[at..][..shape.head_dim].to_vec();
            let [keys, values] = seen.heads(of.kv_head(head));
            let part = (0..seen.len()).fold(Part::empty(shape.head_dim), |sum, k| {
                let largest = of.score(dot(&query, keys.row(k))).0 * LOG2_E;
                let own = Part { sum: values.row(k).to_vec(), largest, total: 1.0 };
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

fn result(part: &Part<f32>) -> Vec<f32> {
    let total = if part.total > 0.0 { part.total } else { 1.0 };
    part.sum.iter().map(|x| x / total).collect()
}

pub(crate) fn decode_merge(on: &mut Operands, shape: &AttentionShape, splits: usize) -> Result<()> {
    let position = on.step()?.position as usize;
    merge_row(on, shape, splits, (0, position))
}

pub(crate) fn decode_merge_several(
    on: &mut Operands,
    shape: &AttentionShape,
    (splits, rows): (usize, usize),
) -> Result<()> {
    for (row, (position, _)) in several(on, rows)?.into_iter().enumerate() {
        merge_row(on, shape, splits, (row, position))?;
    }
    Ok(())
}

fn merge_row(
    on: &mut Operands,
    shape: &AttentionShape,
    splits: usize,
    (row, position): (usize, usize),
) -> Result<()> {
    let parts = merged_row(on, shape, splits, (row, seen(shape, position)?))?;
    let output: Vec<f32> = parts.iter().flat_map(result).collect();
    on.write("output", row * shape.width(), &output)
}

/// The heads of the newest row that ranges have left, and perhaps a key apart.
pub(crate) fn merged(
    on: &Operands,
    shape: &AttentionShape,
    splits: usize,
    newest: NewestKey,
) -> Result<Vec<f32>> {
    let position = on.step()?.position as usize;
    if newest == NewestKey::Among {
        let parts = merged_row(on, shape, splits, (0, seen(shape, position)?))?;
        return Ok(parts.iter().flat_map(result).collect());
    }
    let of = twin(shape, 1)?;
    let mut parts = merged_row(on, shape, splits, (0, seen_before(shape, position)?))?;
    let own = cached(shape, KvCache::F32, on.u32("cache")?, position..position + 1)?;
    let own = Seen::of_cache(shape, own);
    for (head, part) in parts.iter_mut().enumerate() {
        let query = &on.f32("query")?[head * shape.head_dim..][..shape.head_dim];
        let [keys, values] = own.heads(of.kv_head(head));
        let largest = of.score(dot(query, keys.row(0))).0 * LOG2_E;
        let key = Part { sum: values.row(0).to_vec(), largest, total: 1.0 };
        *part = attention_decode_merge(part, &key);
    }
    Ok(parts.iter().flat_map(result).collect())
}

fn merged_row(
    on: &Operands,
    shape: &AttentionShape,
    splits: usize,
    (row, keys): (usize, Range<usize>),
) -> Result<Vec<Part<f32>>> {
    let (count, each) = (ranges(keys, splits).len(), shape.head_dim + PARTIAL_STATE);
    let mut output = vec![];
    for head in row * shape.heads..(row + 1) * shape.heads {
        let partials = &on.f32("partials")?[head * splits * each..][..count * each];
        let part = |data: &[f32]| Part {
            sum: data[..shape.head_dim].to_vec(),
            largest: data[shape.head_dim],
            total: data[shape.head_dim + 1],
        };
        let parts = partials.chunks(each).map(part);
        let whole = parts.fold(Part::empty(shape.head_dim), |a, b| attention_decode_merge(&a, &b));
        output.push(whole);
    }
    Ok(output)
}

/// The newest row's heads, and its queries over the keys before it.
pub(crate) fn newest(on: &mut Operands, shape: &NewestShape, splits: usize) -> Result<()> {
    let NewestShape { heads, k, epsilon, biased, weights } = *shape;
    let rows = heads.stride();
    let matrix = matrix_of_rows(on, weights, (rows, k))?;
    let a = rms_norm_forward(on.first("a", k)?, on.first("norm_weight", k)?, epsilon.0);
    let mut row = matvec_forward(&a, &matrix, None);
    if biased {
        bias_forward(&mut row, on.first("bias", rows)?);
    }
    let position = on.step()?.position as usize;
    to_heads(on, &heads, row, ["query", "angles"], (position, [0, 0]))?;
    decode_before(on, &heads, splits)
}
