//! Attention's kernels on the CPU.

pub(crate) mod by_products;
pub(crate) mod causal;
pub(crate) mod decode;
pub(crate) mod gradient_rows;
pub(crate) mod masked;

use super::{
    AttentionBackwardKeyValue, AttentionBackwardQuery, AttentionDelta, AttentionDeltaTensors,
    AttentionForward, AttentionForwardCached, AttentionGroupSum, AttentionProbabilities,
    AttentionShares, AttentionTensors,
};
use crate::error::Result;
use crate::format::Element;
use crate::kernels::cache::twin::cached;
use crate::kernels::dropout::twin::{KeyDropout, Masks};
use crate::kernels::rope::twin::rotated;
use crate::kernels::{
    AttentionShape, BackwardRows, BatchAttention, CacheAttention, KeyValueOwner, KvCacheFormat,
    PartialSums, RopeShape, Scores,
};
use crate::twins::{Operands, Twin, add_assign, dot};
use causal::{CausalAttention, Head, attend_kept};
use gradient_rows::ForwardResults;
use std::ops::Range;

impl Twin for AttentionTensors {}
impl Twin for AttentionDeltaTensors {}

/// Heads as the twins know them, for `tokens` rows.
pub const fn twin(shape: &AttentionShape, tokens: usize) -> CausalAttention {
    CausalAttention::new(shape.heads, shape.kv_heads, shape.head_dim, tokens)
}

/// Heads as the twins know them, with scores and a window.
fn causal(
    shape: &AttentionShape,
    Scores { soft_cap, scale }: Scores,
    window: Option<usize>,
    tokens: usize,
) -> CausalAttention {
    let [soft_cap, scale] = [soft_cap, scale].map(|x| x.map(|x| x.0));
    CausalAttention { window, soft_cap, scale, ..twin(shape, tokens) }
}

impl CacheAttention {
    /// This attention as the twins know it, for `tokens` rows.
    fn causal(&self, tokens: usize) -> CausalAttention {
        causal(&self.shape, self.scores, self.window, tokens)
    }
}

impl BatchAttention {
    /// As the twins know it, with the masks of the step's dropout.
    pub fn causal(&self, on: &Operands) -> Result<CausalAttention> {
        let step = on.step()?;
        let tokens = step.tokens as usize;
        let mut of = causal(&self.shape, self.scores, self.window, tokens);
        if let Some(rate) = self.dropout {
            let masks = Masks { seed: step.reserved, micro_step: step.draws };
            let place = on.range()?.col0 as usize;
            of.dropout = Some(KeyDropout { rate: rate.0, place, masks, tokens });
        }
        Ok(of)
    }
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

impl Twin for AttentionForward {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let of = self.batch.causal(on)?;
        let shape = self.batch.shape;
        let query = on.read_as("query", Element::halved(self.qkv_f16))?;
        let keys = |_: &Operands, keys: Range<usize>| {
            let own = |k: usize| query[k * shape.stride()..][..shape.stride()].to_vec();
            Ok(keys.flat_map(|k: usize| own(k).split_off(shape.key_offset())).collect())
        };
        forward(on, &shape, of, (&query, 0), keys, self.output_f16)
    }
}

impl Twin for AttentionForwardCached {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let step = on.step()?;
        let of = self.attention.causal(step.tokens as usize);
        let query = on.f32("query")?.to_vec();
        let cache = self.attention.cache();
        let keys = |on: &Operands, keys| cached(&cache, KvCacheFormat::F32, on.u32("keys")?, keys);
        forward(on, &cache.shape, of, (&query, step.position as usize), keys, self.output_f16)
    }
}

/// Attention of rows of queries, the first at a position, to the keys and values of a range.
fn forward(
    on: &mut Operands,
    shape: &AttentionShape,
    of: CausalAttention,
    (query, position): (&[f32], usize),
    keys_of: impl Fn(&Operands, Range<usize>) -> Result<Vec<f32>>,
    output_f16: bool,
) -> Result<()> {
    let documents = on.u32("documents")?.to_vec();
    let mut output = vec![0.0; of.tokens * shape.width()];
    for (t, &start) in documents[..of.tokens].iter().enumerate() {
        let keys = of.keys(start as usize, position + t);
        let first = keys.start;
        let seen = Seen::of_cache(shape, keys_of(on, keys)?);
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
    on.write_as("output", &output, output_f16)
}

impl Twin for AttentionProbabilities {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let step = on.step()?;
        let columns = (step.position + step.tokens) as usize;
        probabilities(self.attention, on, columns, 0)
    }
}

impl Twin for AttentionShares {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let position = on.step()?.position as usize;
        let [head, columns] =
            [0, 1].map(|index| on.u32("probe").map(|probe| probe[index] as usize));
        let (head, columns) = (head?, columns?);
        probabilities(self.attention, on, columns, (head * columns + position) * columns)
    }
}

/// Writes the rows of a head, each of `columns` columns, from element `begin` on.
fn probabilities(
    attention: CacheAttention,
    on: &mut Operands<'_>,
    columns: usize,
    begin: usize,
) -> Result<()> {
    let cache = attention.cache();
    let shape = &cache.shape;
    let step = on.step()?;
    let (tokens, position) = (step.tokens as usize, step.position as usize);
    let head = on.u32("probe")?[0] as usize;
    let of = attention.causal(tokens);
    let (query, lse) = (on.f32("query")?.to_vec(), on.f32("lse")?.to_vec());
    for t in 0..tokens {
        let keys = of.keys(on.u32("documents")?[t] as usize, position + t);
        let rows = cached(&cache, KvCacheFormat::F32, on.u32("keys")?, keys.clone())?;
        let seen = Seen::of_cache(shape, rows);
        let [k, _] = seen.heads(of.kv_head(head));
        let query = &query[t * shape.stride() + head * shape.head_dim..][..shape.head_dim];
        let mut row = vec![0.0; columns];
        for (i, share) in row[keys].iter_mut().enumerate() {
            *share = (of.score(dot(query, k.row(i))).0 - lse[t * shape.heads + head]).exp();
        }
        on.write("probabilities", begin + t * columns, &row)?;
    }
    Ok(())
}

impl Twin for AttentionDelta {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Self { shape, output_f16, d_output_f16, sums } = self;
        let all = on.tokens()? * shape.width();
        let output = on.read_as("output", Element::halved(*output_f16))?;
        let d_output = if *sums == PartialSums::WHOLE {
            on.read_as("d_output", Element::halved(*d_output_f16))?
        } else {
            let sum = on.sum_of("d_output", all, *sums)?;
            on.write("whole", 0, &sum)?;
            sum
        };
        let heads =
            output[..all].chunks(shape.head_dim).zip(d_output[..all].chunks(shape.head_dim));
        let delta: Vec<f32> = heads.map(|(o, d)| dot(o, d)).collect();
        on.write("delta", 0, &delta)
    }
}

/// Runs `each` on what the forward pass has left.
fn backward<T>(
    on: &Operands,
    batch: &BatchAttention,
    lie: BackwardRows,
    each: impl FnOnce(ForwardResults<'_, f32>) -> T,
) -> Result<T> {
    let (tokens, shape) = (on.tokens()?, batch.shape);
    let qkv = on.read_as("qkv", Element::halved(lie.qkv_f16))?;
    let d_out = on.read_as("d_output", Element::halved(lie.d_output_f16))?;
    Ok(each(ForwardResults {
        shape: batch.causal(on)?,
        qkv: &qkv[..tokens * shape.stride()],
        documents: on.u32("documents")?,
        lse: on.first("lse", tokens * shape.heads)?,
        delta: on.first("delta", tokens * shape.heads)?,
        d_out: &d_out[..tokens * shape.width()],
    }))
}

impl Twin for AttentionBackwardQuery {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let (shape, lie) = (&self.batch.shape, self.rows);
        let rows: Vec<Vec<f32>> = backward(on, &self.batch, lie, |pass| {
            let row = |s| (0..shape.heads).flat_map(|head| pass.d_query(head, s)).collect();
            (0..pass.shape.tokens).map(row).collect()
        })?;
        let element = Element::halved(lie.d_qkv_f16);
        for (s, mut row) in rows.into_iter().enumerate() {
            if lie.rotated {
                rotate_back(on, shape.head_dim, &mut row, s)?;
            }
            on.write_at("gradient", s * shape.stride(), &row, element)?;
        }
        Ok(())
    }
}

/// Rotates the gradients of a row's heads back.
fn rotate_back(on: &Operands, head_dim: usize, heads: &mut [f32], row: usize) -> Result<()> {
    let stride = heads.len();
    let of = RopeShape { heads: stride / head_dim, head_dim, dims: head_dim, stride };
    let position = (on.step()?.position as usize + row) - on.u32("documents")?[row] as usize;
    rotated(heads, of, on.f32("table")?, |_| position, false);
    Ok(())
}

impl Twin for AttentionBackwardKeyValue {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let (shape, lie) = (&self.batch.shape, self.rows);
        let group = shape.members();
        let (members, stride, key, value) = match self.owner {
            KeyValueOwner::Group => {
                (group, shape.stride(), shape.key_offset(), shape.value_offset())
            }
            KeyValueOwner::Head => (1, 2 * shape.width(), 0, shape.width()),
        };
        let owners = shape.heads / members;
        let element = Element::halved(lie.d_qkv_f16 && self.owner == KeyValueOwner::Group);
        let gradients: Vec<[Vec<f32>; 2]> = backward(on, &self.batch, lie, |pass| {
            let of = |i: usize| {
                let first = i % owners * members;
                pass.d_key_value_of(first..first + members, i / owners)
            };
            (0..pass.shape.tokens * owners).map(of).collect()
        })?;
        for (i, [mut d_key, d_value]) in gradients.into_iter().enumerate() {
            let at = i / owners * stride + i % owners * shape.head_dim;
            if lie.rotated {
                rotate_back(on, shape.head_dim, &mut d_key, i / owners)?;
            }
            on.write_at("gradient", at + key, &d_key, element)?;
            on.write_at("gradient", at + value, &d_value, element)?;
        }
        Ok(())
    }
}

impl Twin for AttentionGroupSum {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let shape = &self.shape;
        let (tokens, group) = (on.tokens()?, shape.members());
        let parts = on.first("parts", tokens * 2 * shape.width())?.to_vec();
        let target = if self.rotated { "rows" } else { "d_qkv" };
        for (i, members) in parts.chunks(group * shape.head_dim).enumerate() {
            let mut sum = vec![0.0; shape.head_dim];
            members.chunks(shape.head_dim).for_each(|part| add_assign(&mut sum, part));
            let (row, head) = (i / (2 * shape.kv_heads), i % (2 * shape.kv_heads));
            let at = row * shape.stride() + shape.key_offset() + head * shape.head_dim;
            on.write_at(target, at, &sum, Element::halved(self.d_qkv_f16))?;
        }
        if !self.rotated {
            return Ok(());
        }
        for row in 0..tokens {
            let at = row * shape.stride();
            let mut heads = on.f32(target)?[at..][..shape.value_offset()].to_vec();
            rotate_back(on, shape.head_dim, &mut heads, row)?;
            on.write(target, at, &heads)?;
        }
        Ok(())
    }
}
