//! Attention by products, through probabilities and score gradients in tiles.

use super::attention::{turned_back, twin};
use super::operands::Operands;
use crate::error::Result;
use crate::kernels::{AttentionProducts, AttentionShape, STRIP};
use crate::twins::attention as twins;
use crate::twins::dot;
use std::ops::Range;

/// A batch, and where it has its tiles.
struct Batch {
    of: twins::AttentionShape,
    /// Of each head.
    tiles: usize,
    documents: Vec<u32>,
    /// Of each strip of queries the tiles before it less its first one.
    before: Vec<u32>,
    qkv: Vec<f32>,
    d_output: Vec<f32>,
}

impl Batch {
    fn new(
        on: &Operands,
        shape: &AttentionShape,
        (tiles, ends): (usize, usize),
        products: AttentionProducts,
    ) -> Result<Self> {
        let documents = on.u32("documents")?.to_vec();
        let before = documents[2 * ends..].to_vec();
        let qkv = on.f32("qkv")?.to_vec();
        let d_output = match products {
            AttentionProducts::Weights | AttentionProducts::Output => vec![],
            _ => on.f32("d_output")?.to_vec(),
        };
        Ok(Self { of: twin(shape, on.tokens()?)?, tiles, documents, before, qkv, d_output })
    }

    /// Heads and rows.
    fn all(&self) -> impl Iterator<Item = (usize, usize)> {
        let tokens = self.of.tokens;
        (0..self.of.n_heads).flat_map(move |head| (0..tokens).map(move |row| (head, row)))
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
        ((head * self.tiles + tile) * STRIP + row % STRIP) * STRIP + key % STRIP
    }

    /// Where the largest score of a row's keys beside `key` is, and the sum of their weights.
    fn statistic_at(&self, head: usize, row: usize, key: usize) -> usize {
        let tile = self.at(head, row, key) / (STRIP * STRIP);
        2 * ((tile * STRIP / KEYS + key % STRIP / KEYS) * STRIP + row % STRIP)
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

/// Keys that share a largest score.
const KEYS: usize = 64;
/// The largest score of keys that the mask excludes.
const MASKED: f32 = -1e30;

pub(super) fn products(
    on: &mut Operands,
    shape: &AttentionShape,
    (tiles, ends): (usize, usize),
    products: AttentionProducts,
) -> Result<()> {
    let batch = Batch::new(on, shape, (tiles, ends), products)?;
    match products {
        AttentionProducts::Weights => weights(on, &batch),
        AttentionProducts::Output => output(on, shape, &batch),
        AttentionProducts::Scores => scores(on, shape, &batch),
        _ => sums(on, shape, &batch, products),
    }
}

/// Of each row and 64 keys the largest score in base 2, the weights in its units, and their sum.
fn weights(on: &mut Operands, batch: &Batch) -> Result<()> {
    for (head, row) in batch.all() {
        let seen = batch.seen(row);
        for first in batch.places(row).step_by(KEYS) {
            let score = |key| {
                if !seen.contains(&key) {
                    return MASKED;
                }
                let product = dot(batch.fused(row, head), batch.key(head, key));
                batch.of.score(product).0 * std::f32::consts::LOG2_E
            };
            let keys = first..first + KEYS;
            let scores: Vec<f32> = keys.filter(|&key| key < batch.of.tokens).map(score).collect();
            let largest = scores.iter().fold(MASKED, |most, &score| most.max(score));
            let weight = |&score: &f32| if score > MASKED { (score - largest).exp2() } else { 0.0 };
            let weights: Vec<f32> = scores.iter().map(weight).collect();
            let statistic = [largest, weights.iter().sum()];
            on.write("weights", batch.at(head, row, first), &weights)?;
            on.write("statistics", batch.statistic_at(head, row, first), &statistic)?;
        }
    }
    Ok(())
}

fn output(on: &mut Operands, shape: &AttentionShape, batch: &Batch) -> Result<()> {
    let weights = on.f32("weights")?.to_vec();
    let statistics = on.f32("statistics")?.to_vec();
    for (head, row) in batch.all() {
        let seen = batch.seen(row);
        let part = |key| {
            let at = batch.statistic_at(head, row, key);
            (statistics[at], statistics[at + 1])
        };
        let parts: Vec<_> = (seen.start / KEYS * KEYS..seen.end).step_by(KEYS).map(part).collect();
        let largest = parts.iter().fold(MASKED, |most, part| most.max(part.0));
        let total: f32 = parts.iter().map(|part| part.1 * (part.0 - largest).exp2()).sum();
        let weight =
            |key| weights[batch.at(head, row, key)] * (part(key).0 - largest).exp2() / total;
        let out =
            sum(shape.head_dim, seen.clone().map(|key| (weight(key), batch.value(head, key))));
        let at = row * shape.heads + head;
        on.write("output", at * shape.head_dim, &out)?;
        on.write("lse", at, &[largest * std::f32::consts::LN_2 + total.ln()])?;
    }
    Ok(())
}

fn scores(on: &mut Operands, shape: &AttentionShape, batch: &Batch) -> Result<()> {
    let (lse, delta) = (on.f32("lse")?.to_vec(), on.f32("delta")?.to_vec());
    for (head, row) in batch.all() {
        let (seen, statistic) = (batch.seen(row), row * shape.heads + head);
        for key in batch.places(row) {
            let product = dot(batch.fused(row, head), batch.key(head, key));
            let (score, slope) = batch.of.score(product);
            let p = if seen.contains(&key) { (score - lse[statistic]).exp() } else { 0.0 };
            let d_p = dot(batch.d_output(head, row), batch.value(head, key));
            let d_score = slope / shape.score_scale() as f32 * p * (d_p - delta[statistic]);
            let at = batch.at(head, row, key);
            on.write("gradient", at, &[p])?;
            on.write("d_scores", at, &[d_score])?;
        }
    }
    Ok(())
}

fn sums(
    on: &mut Operands,
    shape: &AttentionShape,
    batch: &Batch,
    products: AttentionProducts,
) -> Result<()> {
    let (p, d_scores) = (on.f32("probabilities")?.to_vec(), on.f32("d_scores")?.to_vec());
    let (dim, scale) = (shape.head_dim, shape.score_scale() as f32);
    for (head, row) in batch.all() {
        if products != AttentionProducts::KeyValueSums {
            let weight = |key| scale * d_scores[batch.at(head, row, key)];
            let mut sum = sum(dim, batch.seen(row).map(|key| (weight(key), batch.key(head, key))));
            turned_back(on, shape, &mut sum, row)?;
            on.write("gradient", row * shape.stride() + head * dim, &sum)?;
        }
        if products == AttentionProducts::QuerySums {
            continue;
        }
        let seers = || (row..batch.of.tokens).filter(|&s| batch.seen(s).contains(&row));
        let weight = |s| scale * d_scores[batch.at(head, s, row)];
        let mut d_key = sum(dim, seers().map(|s| (weight(s), batch.fused(s, head))));
        turned_back(on, shape, &mut d_key, row)?;
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
