//! Twins of families 05 and 10: causal grouped-query attention over packed documents.
//!
//! Rows of `qkv` are fused: `q heads | k heads | v heads`. Query head h uses key/value head
//! h / (n_heads / n_kv_heads). Position s sees positions from the start of its document, or of its
//! window, to itself.

use crate::kernels::dropout::twin::KeyDropout;
use crate::kernels::softmax::twin::softmax_forward;
use crate::twins::{NEGATIVE_HUGE, Real, add_assign, dot};
use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CausalAttention {
    pub n_heads: usize,
    pub n_kv_heads: usize,
    pub head_dim: usize,
    pub tokens: usize,
    /// A query sees at most this many of the latest keys, itself among them.
    pub window: Option<usize>,
    /// Scores are squashed into ± this by tanh.
    pub soft_cap: Option<f64>,
    /// Factor on the products of queries and keys; 1 / √head_dim if none is given.
    pub scale: Option<f64>,
    /// What a training step leaves out.
    pub dropout: Option<KeyDropout>,
}

impl CausalAttention {
    /// Causal attention, neither windowed nor capped.
    pub const fn new(n_heads: usize, n_kv_heads: usize, head_dim: usize, tokens: usize) -> Self {
        let (window, soft_cap, scale, dropout) = (None, None, None, None);
        Self { n_heads, n_kv_heads, head_dim, tokens, window, soft_cap, scale, dropout }
    }

    /// Keys that the query at position `s` of a document (or cache) from `start` on sees.
    pub fn keys(self, start: usize, s: usize) -> Range<usize> {
        let window = self.window.unwrap_or(usize::MAX);
        start.max((s + 1).saturating_sub(window))..s + 1
    }

    /// The score of a product of a query and a key, and its derivative by the product.
    pub fn score<R: Real>(self, product: R) -> (R, R) {
        let scaled = product * self.scale();
        match self.soft_cap.map(R::from_f64) {
            None => (scaled, self.scale()),
            Some(cap) => {
                let t = (scaled / cap).tanh();
                (cap * t, self.scale::<R>() * (R::ONE - t * t))
            }
        }
    }

    /// What the probability of a key is multiplied by.
    pub fn kept<R: Real>(self, head: usize, row: usize, key: usize) -> R {
        self.dropout.map_or(R::ONE, |dropout| dropout.kept(head, row, key))
    }

    /// Elements of a fused row.
    pub fn qkv_width(self) -> usize {
        (self.n_heads + 2 * self.n_kv_heads) * self.head_dim
    }

    /// Elements of an output row.
    pub fn out_width(self) -> usize {
        self.n_heads * self.head_dim
    }

    /// Elements of a cache row, `k heads | v heads`.
    pub fn cache_width(self) -> usize {
        2 * self.n_kv_heads * self.head_dim
    }

    /// First key element of a fused row.
    pub fn key_offset(self) -> usize {
        self.out_width()
    }

    /// First value element of a fused row.
    pub fn value_offset(self) -> usize {
        self.key_offset() + self.n_kv_heads * self.head_dim
    }

    /// The key/value head of a query head.
    pub fn kv_head(self, head: usize) -> usize {
        head / (self.n_heads / self.n_kv_heads)
    }

    fn scale<R: Real>(self) -> R {
        match self.scale {
            Some(scale) => R::from_f64(scale),
            None => R::ONE / R::from_usize(self.head_dim).sqrt(),
        }
    }
}

/// One head of a matrix of rows: keys or values inside `qkv` or a cache.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a, R> {
    pub data: &'a [R],
    /// Elements from one row to the next.
    pub stride: usize,
    pub offset: usize,
    pub head_dim: usize,
}

impl<'a, R> Head<'a, R> {
    pub fn row(&self, i: usize) -> &'a [R] {
        &self.data[i * self.stride + self.offset..][..self.head_dim]
    }
}

/// Running maximum and sum of exponentials of a stream of scores (Milakov and Gimelshein,
/// arXiv:1805.02867).
#[derive(Clone, Copy, Debug)]
pub struct OnlineSoftmax<R> {
    pub max: R,
    pub sum: R,
}

impl<R: Real> Default for OnlineSoftmax<R> {
    fn default() -> Self {
        Self { max: R::from_f64(NEGATIVE_HUGE), sum: R::ZERO }
    }
}

impl<R: Real> OnlineSoftmax<R> {
    /// Takes a score; returns the factor that corrects what was summed before, and its own weight.
    pub fn push(&mut self, score: R) -> (R, R) {
        let max = self.max.max(score);
        let (correction, weight) = ((self.max - max).exp(), (score - max).exp());
        *self = Self { max, sum: self.sum * correction + weight };
        (correction, weight)
    }

    /// Natural logarithm of Σ exp(score).
    pub fn log_sum_exp(&self) -> R {
        if self.sum > R::ZERO { self.max + self.sum.ln() } else { self.max }
    }
}

/// Attention of one query over the keys of a range, in one pass (Dao et al., arXiv:2205.14135):
/// writes the output and returns the log-sum-exp. With no key the output is 0.
pub fn attend<R: Real>(
    query: &[R],
    keys: Head<'_, R>,
    values: Head<'_, R>,
    range: Range<usize>,
    score: impl Fn(R) -> R,
    out: &mut [R],
) -> R {
    attend_kept(query, keys, values, range, score, |_| R::ONE, out)
}

/// Attends to keys whose probabilities are multiplied by what is `kept` of each.
pub fn attend_kept<R: Real>(
    query: &[R],
    keys: Head<'_, R>,
    values: Head<'_, R>,
    range: Range<usize>,
    score: impl Fn(R) -> R,
    kept: impl Fn(usize) -> R,
    out: &mut [R],
) -> R {
    let mut state = OnlineSoftmax::default();
    out.fill(R::ZERO);
    for k in range {
        let (correction, weight) = state.push(score(dot(query, keys.row(k))));
        let weight = weight * kept(k);
        out.iter_mut().zip(values.row(k)).for_each(|(o, &v)| *o = *o * correction + weight * v);
    }
    if state.sum > R::ZERO {
        out.iter_mut().for_each(|o| *o = *o / state.sum);
    }
    state.log_sum_exp()
}

/// The queries, keys and values of one query head inside fused rows.
fn heads<R>(shape: CausalAttention, qkv: &[R], head: usize) -> [Head<'_, R>; 3] {
    let kv = shape.kv_head(head) * shape.head_dim;
    [head * shape.head_dim, shape.key_offset() + kv, shape.value_offset() + kv].map(|offset| Head {
        data: qkv,
        stride: shape.qkv_width(),
        offset,
        head_dim: shape.head_dim,
    })
}

/// (out `[tokens, n_heads · head_dim]`, natural-log LSE `[tokens, n_heads]`)
pub fn attention_forward<R: Real>(
    shape: CausalAttention,
    qkv: &[R],
    documents: &[u32],
) -> (Vec<R>, Vec<R>) {
    let mut out = vec![R::ZERO; shape.tokens * shape.out_width()];
    let mut lse = vec![];
    for (i, row) in out.chunks_exact_mut(shape.head_dim).enumerate() {
        let (s, head) = (i / shape.n_heads, i % shape.n_heads);
        let [q, k, v] = heads(shape, qkv, head);
        let range = shape.keys(documents[s] as usize, s);
        let kept = |key| shape.kept(head, s, key);
        lse.push(attend_kept(q.row(s), k, v, range, |x| shape.score(x).0, kept, row));
    }
    (out, lse)
}

/// How much new rows after `position` cached ones attend to each row of the cache with one head: softmax of the scores,
/// 0 for keys that a row does not see. `[tokens, position + tokens]`
pub fn attention_probabilities_forward<R: Real>(
    shape: CausalAttention,
    qkv: &[R],
    cache: &[R],
    position: usize,
    head: usize,
) -> Vec<R> {
    let (stride, head_dim) = (shape.cache_width(), shape.head_dim);
    let query = heads(shape, qkv, head)[0];
    let offset = shape.kv_head(head) * head_dim;
    let keys = Head { data: cache, stride, offset, head_dim };
    let columns = position + shape.tokens;
    let mut shares = vec![R::ZERO; shape.tokens * columns];
    for (t, row) in shares.chunks_exact_mut(columns).enumerate() {
        let seen = shape.keys(0, position + t);
        let scores = seen.clone().map(|k| shape.score(dot(query.row(t), keys.row(k))).0);
        let softmax = softmax_forward(&scores.collect::<Vec<R>>(), seen.len());
        row[seen].copy_from_slice(&softmax);
    }
    shares
}

/// Attention of new rows after `position` cached ones. The cache already holds the keys and values of the new rows too.
/// Row t sees cache rows 0 to `position` + t.
pub fn attention_prefill<R: Real>(
    shape: CausalAttention,
    qkv: &[R],
    cache: &[R],
    position: usize,
) -> Vec<R> {
    let (stride, head_dim) = (shape.cache_width(), shape.head_dim);
    let mut out = vec![R::ZERO; shape.tokens * shape.out_width()];
    for (i, row) in out.chunks_exact_mut(head_dim).enumerate() {
        let (t, head) = (i / shape.n_heads, i % shape.n_heads);
        let query = heads(shape, qkv, head)[0].row(t);
        let kv_head = |head: usize| Head { data: cache, stride, offset: head * head_dim, head_dim };
        let key_head = shape.kv_head(head);
        let (keys, values) = (kv_head(key_head), kv_head(shape.n_kv_heads + key_head));
        attend(query, keys, values, shape.keys(0, position + t), |x| shape.score(x).0, row);
    }
    out
}

/// [`attention_prefill`] of a single row: `qkv_row` is the row of the newest of `cache_len` cached
/// tokens.
pub fn attention_decode<R: Real>(
    shape: CausalAttention,
    qkv_row: &[R],
    cache: &[R],
    cache_len: usize,
) -> Vec<R> {
    attention_prefill(CausalAttention { tokens: 1, ..shape }, qkv_row, cache, cache_len - 1)
}

/// What a range of keys leaves for the merge: the weighted sum of values, the largest score in base 2
/// and the sum of weights.
#[derive(Clone, Debug, PartialEq)]
pub struct PartialSoftmax<R> {
    pub sum: Vec<R>,
    pub largest: R,
    pub total: R,
}

impl<R: Real> PartialSoftmax<R> {
    /// A range without keys.
    pub fn empty(head_dim: usize) -> Self {
        let largest = R::from_f64(NEGATIVE_HUGE);
        Self { sum: vec![R::ZERO; head_dim], largest, total: R::ZERO }
    }
}

fn exp2<R: Real>(x: R) -> R {
    (x * R::from_f64(std::f64::consts::LN_2)).exp()
}

/// One query head of a fused row over a range of the cache (Dao et al., Flash-Decoding, 2023).
pub fn attention_decode_split<R: Real>(
    shape: CausalAttention,
    qkv_row: &[R],
    cache: &[R],
    head: usize,
    range: Range<usize>,
) -> PartialSoftmax<R> {
    let (stride, head_dim) = (shape.cache_width(), shape.head_dim);
    let query = heads(shape, qkv_row, head)[0].row(0);
    let of = |head: usize| Head { data: cache, stride, offset: head * head_dim, head_dim };
    let (keys, values) = (of(shape.kv_head(head)), of(shape.n_kv_heads + shape.kv_head(head)));
    let base = R::from_f64(std::f64::consts::LOG2_E);
    let part = |k: usize| PartialSoftmax {
        sum: values.row(k).to_vec(),
        largest: shape.score(dot(query, keys.row(k))).0 * base,
        total: R::ONE,
    };
    range.map(part).fold(PartialSoftmax::empty(head_dim), |a, b| attention_decode_merge(&a, &b))
}

/// Two ranges as one.
pub fn attention_decode_merge<R: Real>(
    a: &PartialSoftmax<R>,
    b: &PartialSoftmax<R>,
) -> PartialSoftmax<R> {
    let largest = a.largest.max(b.largest);
    let (x, y) = (exp2(a.largest - largest), exp2(b.largest - largest));
    let sum = a.sum.iter().zip(&b.sum).map(|(&p, &q)| x * p + y * q).collect();
    PartialSoftmax { sum, largest, total: x * a.total + y * b.total }
}

/// d_qkv, fused like `qkv`, with P recomputed from the LSE (Dao, arXiv:2307.08691):
/// P = exp(score(q·k) − LSE), D = Σ dO·O, dS = score′(q·k) · P · (dO·v − D),
/// dQ = Σ dS k, dK = Σ dS q, dV = Σ P dO, the last two also over the query heads of a group. With dropout
/// P in dV and dO·v in dS are multiplied by what is kept.
pub fn attention_backward<R: Real>(
    shape: CausalAttention,
    qkv: &[R],
    documents: &[u32],
    out: &[R],
    lse: &[R],
    d_out: &[R],
) -> Vec<R> {
    let head_dim = shape.head_dim;
    let mut d_qkv = vec![R::ZERO; qkv.len()];
    for head in 0..shape.n_heads {
        let [q, k, v] = heads(shape, qkv, head);
        let output =
            |data| Head { data, stride: shape.out_width(), offset: head * head_dim, head_dim };
        let (o, d_o) = (output(out), output(d_out));
        let mut add = |of: Head<'_, R>, row: usize, factor: R, x: &[R]| {
            let term: Vec<R> = x.iter().map(|&x| factor * x).collect();
            add_assign(&mut d_qkv[row * of.stride + of.offset..][..head_dim], &term);
        };
        for s in 0..shape.tokens {
            let d = dot(d_o.row(s), o.row(s));
            for j in shape.keys(documents[s] as usize, s) {
                let (score, slope) = shape.score(dot(q.row(s), k.row(j)));
                let p = (score - lse[s * shape.n_heads + head]).exp();
                let kept = shape.kept::<R>(head, s, j);
                let d_s = slope * p * (kept * dot(d_o.row(s), v.row(j)) - d);
                add(q, s, d_s, k.row(j));
                add(k, j, d_s, q.row(s));
                add(v, j, kept * p, d_o.row(s));
            }
        }
    }
    d_qkv
}

#[cfg(test)]
mod tests;
