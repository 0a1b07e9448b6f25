//! Attention's backward pass by products, through probabilities and score gradients in tiles.

use super::causal::CausalAttention;
use super::rotate_back;
use crate::error::Result;
use crate::kernels::attention::AttentionBackwardProducts;
use crate::kernels::{AttentionProducts, STRIP};
use crate::twins::{Operands, Twin, dot};
use std::ops::Range;

/// A batch, and where it has its tiles.
struct TileBatch {
    of: CausalAttention,
    /// Tiles of each of these heads.
    tiles: usize,
    heads: Range<usize>,
    documents: Vec<u32>,
    /// For each strip of queries the tiles before it less its first one.
    before: Vec<u32>,
    qkv: Vec<f32>,
    d_output: Vec<f32>,
}

impl TileBatch {
    fn new(on: &Operands, spec: &AttentionBackwardProducts) -> Result<Self> {
        let AttentionBackwardProducts { shape, scores, window, tiles, ends, first_head, .. } =
            *spec;
        let documents = on.u32("documents")?.to_vec();
        let before = documents[2 * ends..].to_vec();
        let (qkv, d_output) = (on.f32("qkv")?.to_vec(), on.f32("d_output")?.to_vec());
        let of = super::causal(&shape, scores, window, on.tokens()?);
        let heads = first_head..first_head + spec.heads;
        Ok(Self { of, tiles, heads, documents, before, qkv, d_output })
    }

    /// Heads and rows.
    fn all(&self) -> impl Iterator<Item = (usize, usize)> {
        let tokens = self.of.tokens;
        self.heads.clone().flat_map(move |head| (0..tokens).map(move |row| (head, row)))
    }

    fn seen(&self, row: usize) -> Range<usize> {
        self.of.keys(self.documents[row] as usize, row)
    }

    /// The keys of a row that have a place.
    fn places(&self, row: usize) -> Range<usize> {
        let strip = row / STRIP;
        self.documents[strip * STRIP] as usize / STRIP * STRIP..(strip + 1) * STRIP
    }

    fn at(&self, head: usize, row: usize, key: usize) -> usize {
        let tile = self.before[row / STRIP].wrapping_add((key / STRIP) as u32) as usize;
        (((head - self.heads.start) * self.tiles + tile) * STRIP + row % STRIP) * STRIP
            + key % STRIP
    }

    /// The vector of a row of the fused ones: `head` counts queries, keys and values.
    fn fused(&self, row: usize, head: usize) -> &[f32] {
        let dim = self.of.head_dim;
        &self.qkv[row * self.of.qkv_width() + head * dim..][..dim]
    }

    fn key(&self, head: usize, row: usize) -> &[f32] {
        self.fused(row, self.of.n_heads + self.of.kv_head(head))
    }

    fn value(&self, head: usize, row: usize) -> &[f32] {
        self.fused(row, self.of.n_heads + self.of.n_kv_heads + self.of.kv_head(head))
    }

    fn d_output(&self, head: usize, row: usize) -> &[f32] {
        let dim = self.of.head_dim;
        &self.d_output[(row * self.of.n_heads + head) * dim..][..dim]
    }
}

impl Twin for AttentionBackwardProducts {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let batch = TileBatch::new(on, self)?;
        match self.products {
            AttentionProducts::Scores => scores(on, self, &batch),
            _ => sums(on, self, &batch),
        }
    }
}

fn scores(on: &mut Operands, spec: &AttentionBackwardProducts, batch: &TileBatch) -> Result<()> {
    let (shape, factor) = (&spec.shape, spec.scores.factor(&spec.shape) as f32);
    let (lse, delta) = (on.f32("lse")?.to_vec(), on.f32("delta")?.to_vec());
    for (head, row) in batch.all() {
        let (seen, statistic) = (batch.seen(row), row * shape.heads + head);
        for key in batch.places(row) {
            let product = dot(batch.fused(row, head), batch.key(head, key));
            let (score, slope) = batch.of.score(product);
            let p = if seen.contains(&key) { (score - lse[statistic]).exp() } else { 0.0 };
            let d_p = dot(batch.d_output(head, row), batch.value(head, key));
            let d_score = slope / factor * p * (d_p - delta[statistic]);
            let at = batch.at(head, row, key);
            on.write("gradient", at, &[p])?;
            on.write("d_scores", at, &[d_score])?;
        }
    }
    Ok(())
}

fn sums(on: &mut Operands, spec: &AttentionBackwardProducts, batch: &TileBatch) -> Result<()> {
    let AttentionBackwardProducts { shape, products, rotated, .. } = *spec;
    let (p, d_scores) = (on.f32("probabilities")?.to_vec(), on.f32("d_scores")?.to_vec());
    let (dim, scale) = (shape.head_dim, spec.scores.factor(&shape) as f32);
    for (head, row) in batch.all() {
        if products != AttentionProducts::KeyValueSums {
            let weight = |key| scale * d_scores[batch.at(head, row, key)];
            let mut sum = sum(dim, batch.seen(row).map(|key| (weight(key), batch.key(head, key))));
            if rotated {
                rotate_back(on, dim, &mut sum, row)?;
            }
            on.write("gradient", row * shape.stride() + head * dim, &sum)?;
        }
        if products == AttentionProducts::QuerySums {
            continue;
        }
        let seers = || (row..batch.of.tokens).filter(|&s| batch.seen(s).contains(&row));
        let weight = |s| scale * d_scores[batch.at(head, s, row)];
        let mut d_key = sum(dim, seers().map(|s| (weight(s), batch.fused(s, head))));
        if rotated {
            rotate_back(on, dim, &mut d_key, row)?;
        }
        let weight = |s| p[batch.at(head, s, row)];
        let d_value = sum(dim, seers().map(|s| (weight(s), batch.d_output(head, s))));
        let (name, at, value) = if shape.heads > shape.kv_heads {
            ("parts", 2 * row * shape.width(), shape.width())
        } else {
            ("gradient", row * shape.stride() + shape.key_offset(), shape.width())
        };
        on.write(name, at + head * dim, &d_key)?;
        on.write(name, at + value + head * dim, &d_value)?;
    }
    Ok(())
}

fn sum<'a>(len: usize, terms: impl Iterator<Item = (f32, &'a [f32])>) -> Vec<f32> {
    let mut sum = vec![0.0; len];
    for (weight, vector) in terms {
        sum.iter_mut().zip(vector).for_each(|(sum, x)| *sum += weight * x);
    }
    sum
}
