//! The gradients of attention for single rows and keys: what
//! [`attention_backward`](super::causal::attention_backward) computes, where all rows of a long
//! batch would take minutes.

use super::causal::{CausalAttention, Head};
use crate::twins::{Real, dot};
use std::ops::Range;

/// A batch and what its forward pass left.
#[derive(Clone, Copy, Debug)]
pub struct ForwardResults<'a, R> {
    pub shape: CausalAttention,
    /// Fused rows.
    pub qkv: &'a [R],
    /// First position of each position's document.
    pub documents: &'a [u32],
    /// `[tokens, n_heads]`
    pub lse: &'a [R],
    /// Σ output · d_output: `[tokens, n_heads]`
    pub delta: &'a [R],
    pub d_out: &'a [R],
}

impl<'a, R: Real> ForwardResults<'a, R> {
    fn fused(&self, row: usize, offset: usize, head: usize) -> &'a [R] {
        let (stride, head_dim) = (self.shape.qkv_width(), self.shape.head_dim);
        Head { data: self.qkv, stride, offset: offset + head * head_dim, head_dim }.row(row)
    }

    fn query(&self, head: usize, s: usize) -> &'a [R] {
        self.fused(s, 0, head)
    }

    fn key(&self, kv_head: usize, j: usize) -> &'a [R] {
        self.fused(j, self.shape.key_offset(), kv_head)
    }

    fn d_output(&self, head: usize, s: usize) -> &'a [R] {
        let (stride, head_dim) = (self.shape.out_width(), self.shape.head_dim);
        Head { data: self.d_out, stride, offset: head * head_dim, head_dim }.row(s)
    }

    /// What is kept of the probability of a key that the query sees, and the gradient of their product.
    fn weights(&self, head: usize, s: usize, j: usize) -> (R, R) {
        let (kept, whole, shared) = self.weight_terms(head, s, j);
        (kept, whole - shared)
    }

    /// The weight with the gradient's two terms: that of the probability, and what all keys share of it.
    pub fn weight_terms(&self, head: usize, s: usize, j: usize) -> (R, R, R) {
        let (shape, kv_head) = (self.shape, self.shape.kv_head(head));
        let at = s * shape.n_heads + head;
        let value = self.fused(j, shape.value_offset(), kv_head);
        let (score, slope) = shape.score(dot(self.query(head, s), self.key(kv_head, j)));
        let p = (score - self.lse[at]).exp();
        let kept = shape.kept::<R>(head, s, j);
        let slope = slope * p;
        (kept * p, slope * kept * dot(self.d_output(head, s), value), slope * self.delta[at])
    }

    /// d_query of row `s`: Σ dS k.
    pub fn d_query(&self, head: usize, s: usize) -> Vec<R> {
        let mut sum = vec![R::ZERO; self.shape.head_dim];
        for j in self.shape.keys(self.documents[s] as usize, s) {
            let (_, d_s) = self.weights(head, s, j);
            add_multiple(&mut sum, d_s, self.key(self.shape.kv_head(head), j));
        }
        sum
    }

    /// d_key and d_value of row `j`: Σ dS q and Σ P dO over the queries that see it.
    pub fn d_key_value(&self, kv_head: usize, j: usize) -> [Vec<R>; 2] {
        let group = self.shape.n_heads / self.shape.n_kv_heads;
        self.d_key_value_of(kv_head * group..(kv_head + 1) * group, j)
    }

    /// The parts of these query heads, which share a key, in d_key and d_value of row `j`.
    pub fn d_key_value_of(&self, heads: Range<usize>, j: usize) -> [Vec<R>; 2] {
        let shape = self.shape;
        let mut sums = [(); 2].map(|()| vec![R::ZERO; shape.head_dim]);
        for s in
            (j..shape.tokens).filter(|&s| shape.keys(self.documents[s] as usize, s).contains(&j))
        {
            for head in heads.clone() {
                let (p, d_s) = self.weights(head, s, j);
                add_multiple(&mut sums[0], d_s, self.query(head, s));
                add_multiple(&mut sums[1], p, self.d_output(head, s));
            }
        }
        sums
    }
}

fn add_multiple<R: Real>(sum: &mut [R], factor: R, x: &[R]) {
    sum.iter_mut().zip(x).for_each(|(sum, &x)| *sum += factor * x);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::attention::twin::causal::{attention_backward, attention_forward};
    use crate::twins::check::{assert_close, noise};

    fn every_row_is_that_of_the_whole(shape: CausalAttention, documents: &[u32]) {
        let qkv = noise::<f64>(1, shape.tokens * shape.qkv_width());
        let d_out = noise::<f64>(2, shape.tokens * shape.out_width());
        let (out, lse) = attention_forward(shape, &qkv, documents);
        let whole = attention_backward(shape, &qkv, documents, &out, &lse, &d_out);
        let rows = out.chunks(shape.head_dim).zip(d_out.chunks(shape.head_dim));
        let delta: Vec<f64> = rows.map(|(o, d)| dot(o, d)).collect();
        let pass =
            ForwardResults { shape, qkv: &qkv, documents, lse: &lse, delta: &delta, d_out: &d_out };
        for row in 0..shape.tokens {
            let heads = 0..shape.n_heads;
            let mut got: Vec<f64> = heads.flat_map(|head| pass.d_query(head, row)).collect();
            let pairs = (0..shape.n_kv_heads).map(|head| pass.d_key_value(head, row));
            let (keys, values): (Vec<_>, Vec<_>) = pairs.map(|[key, value]| (key, value)).unzip();
            got.extend(keys.into_iter().chain(values).flatten());
            let width = shape.qkv_width();
            assert_close("row", &got, &whole[row * width..][..width], 1e-14, 1e-13);
        }
    }

    #[test]
    fn rows_and_keys_are_those_of_the_whole_gradient() {
        let plain = CausalAttention::new(4, 2, 8, 9);
        every_row_is_that_of_the_whole(plain, &[0; 9]);
        let documents = [0, 1, 1, 1, 1, 1, 6, 6, 6];
        every_row_is_that_of_the_whole(plain, &documents);
        let special = CausalAttention { window: Some(3), soft_cap: Some(1.5), ..plain };
        every_row_is_that_of_the_whole(special, &documents);
    }
}
