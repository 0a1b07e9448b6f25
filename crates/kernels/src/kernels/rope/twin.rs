//! Twins of family 04: rotary position embedding (Su et al., arXiv:2104.09864) on fused rows, and
//! the key-value cache.

use super::{RopeAppend, RopeRows};
use crate::arch::Rope;
use crate::error::Result;
use crate::kernels::attention::{self, twin::causal::CausalAttention};
use crate::kernels::norm::twin::{head_norm_forward, norm_factors};
use crate::kernels::shape::{PartialSums, RopeShape};
use crate::twins::{Operands, Real, Twin};

/// (cos, sin) of each position and pair, `[positions, pairs]`, in f64.
pub fn rope_table(positions: usize, rope: &Rope) -> Vec<[f64; 2]> {
    let (frequencies, magnitude) = (rope.frequencies(false), rope.magnitude());
    let turned = |position: usize| {
        frequencies.iter().map(move |frequency| {
            let angle = position as f64 * frequency;
            [magnitude * libm::cos(angle), magnitude * libm::sin(angle)]
        })
    };
    (0..positions).flat_map(turned).collect()
}

/// Rotates the query and key heads of each row of `qkv` in place, or the first elements of each, as many as turn.
/// Pairs are half of these apart, as Hugging Face's `rotate_half` has them; a row's position is `offset` + its index − the start
/// of its document.
pub fn rope_forward<R: Real>(
    shape: CausalAttention,
    qkv: &mut [R],
    documents: &[u32],
    offset: usize,
    rope: &Rope,
) {
    rotate(shape, qkv, documents, offset, rope, 1.0);
}

/// The transposed, that is inverse, rotation of [`rope_forward`], for gradients.
pub fn rope_backward<R: Real>(
    shape: CausalAttention,
    d_qkv: &mut [R],
    documents: &[u32],
    offset: usize,
    rope: &Rope,
) {
    rotate(shape, d_qkv, documents, offset, rope, -1.0);
}

fn rotate<R: Real>(
    shape: CausalAttention,
    qkv: &mut [R],
    documents: &[u32],
    offset: usize,
    rope: &Rope,
    direction: f64,
) {
    let (dims, half) = (rope.head_dim, rope.head_dim / 2);
    let table = rope_table(offset + shape.tokens, rope);
    let rotated = (shape.n_heads + shape.n_kv_heads) * shape.head_dim;
    for (t, row) in qkv.chunks_exact_mut(shape.qkv_width()).enumerate() {
        let position = offset + t - documents[t] as usize;
        for head in row[..rotated].chunks_exact_mut(shape.head_dim) {
            let (first, second) = head[..dims].split_at_mut(half);
            for ((a, b), [cos, sin]) in first.iter_mut().zip(second).zip(&table[position * half..])
            {
                let (cos, sin) = (R::from_f64(*cos), R::from_f64(direction * sin));
                (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
            }
        }
    }
}

/// Writes the key and value heads of each row of `qkv` to the cache rows from `position` on; a
/// cache row is `k heads | v heads`.
pub fn cache_append_forward<R: Real>(
    shape: CausalAttention,
    qkv: &[R],
    cache: &mut [R],
    position: usize,
) {
    let width = shape.cache_width();
    for (t, row) in qkv.chunks_exact(shape.qkv_width()).enumerate() {
        cache[(position + t) * width..][..width].copy_from_slice(&row[shape.key_offset()..]);
    }
}

/// Rotates heads of rows; the table has (cos, sin) by position and pair.
pub(crate) fn rotated(
    rows: &mut [f32],
    RopeShape { heads, head_dim, dims, stride }: RopeShape,
    table: &[f32],
    position: impl Fn(usize) -> usize,
    forward: bool,
) {
    for (t, row) in rows.chunks_exact_mut(stride).enumerate() {
        let turns = &table[position(t) * dims..][..dims];
        for head in row[..heads * head_dim].chunks_exact_mut(head_dim) {
            let (first, second) = head[..dims].split_at_mut(dims / 2);
            for ((a, b), turn) in first.iter_mut().zip(second).zip(turns.chunks_exact(2)) {
                let (cos, sin) = (turn[0], if forward { turn[1] } else { -turn[1] });
                (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
            }
        }
    }
}

impl Twin for RopeRows {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Self { shape, forward, half, sums } = *self;
        let step = on.step()?;
        let (from, to) = match (half, sums) {
            (true, _) => ("qkv", "rotated"),
            (_, PartialSums::WHOLE) => ("qkv", "qkv"),
            _ => ("parts", "rows"),
        };
        let mut rows = on.sum_of(from, step.tokens as usize * shape.stride, sums)?;
        let (table, documents) = (on.f32("table")?, on.u32("documents")?);
        // The start of a document is said by the row: of rows of texts of their own it wraps.
        let position = |t: usize| (step.position + t as u32).wrapping_sub(documents[t]) as usize;
        rotated(&mut rows, shape, table, position, forward);
        on.write_as(to, &rows, half)
    }
}

impl Twin for RopeAppend {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Self { shape, sums, cache, norms } = *self;
        let step = on.step()?;
        let from = if sums == PartialSums::WHOLE { "rows" } else { "parts" };
        let mut rows = on.sum_of(from, step.tokens as usize * shape.stride, sums)?;
        if let Some(terms) = norms {
            let weight = norm_factors(on.first("weight", 2 * shape.head_dim)?, terms.shifted);
            let of = attention::twin::twin(&cache.shape, step.tokens as usize);
            rows = head_norm_forward(of, &rows, &weight, terms.epsilon.0);
        }
        let (table, documents) = (on.f32("table")?, on.u32("documents")?);
        let position = |t: usize| (step.position + t as u32).wrapping_sub(documents[t]) as usize;
        rotated(&mut rows, shape, table, position, true);
        let width = cache.shape.cache_stride();
        for (t, row) in rows.chunks_exact(shape.stride).enumerate() {
            let place = step.position as usize + t;
            let place = cache.ring.map_or(place, |ring| place % ring);
            on.write("cache", place * width, &row[cache.shape.key_offset()..])?;
        }
        on.write("rows", 0, &rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::twins::check::{assert_close, assert_gradient, noise};

    /// Turns by 100^(−2i / head_dim).
    fn rope(head_dim: usize) -> Rope {
        Rope::plain(head_dim, 100.0)
    }

    const SHAPE: CausalAttention = CausalAttention::new(4, 2, 6, 5);
    const DOCUMENTS: [u32; 5] = [0, 0, 0, 3, 3];

    fn rotated(x: &[f64], offset: usize) -> Vec<f64> {
        let mut y = x.to_vec();
        rope_forward(SHAPE, &mut y, &DOCUMENTS, offset, &rope(SHAPE.head_dim));
        y
    }

    #[test]
    fn pairs_are_half_a_head_apart() {
        let shape = CausalAttention::new(1, 1, 4, 2);
        let mut qkv = [[1.0, 0.0, 0.0, 2.0].repeat(3), [1.0, 0.0, 0.0, 2.0].repeat(3)].concat();
        rope_forward(shape, &mut qkv, &[0, 0], 0, &rope(shape.head_dim));
        let [(sin0, cos0), (sin1, cos1)] = [1.0f64.sin_cos(), 0.1f64.sin_cos()];
        // Position 0 is not turned, position 1 by angles 1 and 100^(−1/2); values never.
        assert_eq!(qkv[..12], [1.0, 0.0, 0.0, 2.0].repeat(3));
        assert_close("q", &qkv[12..16], &[cos0, -2.0 * sin1, sin0, 2.0 * cos1], 1e-15, 0.0);
        assert_eq!(qkv[12..16], qkv[16..20]);
        assert_eq!(qkv[20..], [1.0, 0.0, 0.0, 2.0]);
    }

    #[test]
    fn the_rest_of_a_head_stays_where_fewer_elements_turn() {
        let whole = noise::<f64>(1, 5 * SHAPE.qkv_width());
        let mut turned = whole.clone();
        rope_forward(SHAPE, &mut turned, &DOCUMENTS, 3, &rope(4));
        // The first four elements turn as heads of four do.
        let narrow = CausalAttention { head_dim: 4, ..SHAPE };
        let first = |rows: &[f64]| -> Vec<f64> {
            rows.chunks_exact(SHAPE.head_dim).flat_map(|head| head[..4].to_vec()).collect()
        };
        let mut expected = first(&whole);
        rope_forward(narrow, &mut expected, &DOCUMENTS, 3, &rope(4));
        assert_eq!(first(&turned), expected);
        for (was, is) in whole.chunks_exact(6).zip(turned.chunks_exact(6)) {
            assert_eq!(was[4..], is[4..]);
        }
    }

    #[test]
    fn positions_restart_with_each_document() {
        let x = noise::<f64>(1, SHAPE.qkv_width());
        let y = rotated(&x.repeat(5), 0);
        let rows: Vec<&[f64]> = y.chunks_exact(SHAPE.qkv_width()).collect();
        assert_eq!(rows[0], x);
        assert_eq!((rows[0], rows[1]), (rows[3], rows[4]));
        assert_ne!(rows[1], rows[2]);
    }

    #[test]
    fn offset_continues_a_cached_sequence() {
        let x = noise::<f64>(1, 5 * SHAPE.qkv_width());
        let mut whole = x.clone();
        rope_forward(SHAPE, &mut whole, &[0; 5], 0, &rope(SHAPE.head_dim));
        let split = 2 * SHAPE.qkv_width();
        let mut tail = x[split..].to_vec();
        rope_forward(
            CausalAttention { tokens: 3, ..SHAPE },
            &mut tail,
            &[0; 3],
            2,
            &rope(SHAPE.head_dim),
        );
        assert_eq!(tail, whole[split..]);
    }

    #[test]
    fn backward_inverts_forward() {
        let x = noise::<f64>(1, 5 * SHAPE.qkv_width());
        let mut y = rotated(&x, 1000);
        rope_backward(SHAPE, &mut y, &DOCUMENTS, 1000, &rope(SHAPE.head_dim));
        assert_close("x", &y, &x, 1e-14, 0.0);
    }

    #[test]
    fn backward_is_the_gradient() {
        let (x, d_y) = (noise(1, 5 * SHAPE.qkv_width()), noise::<f64>(2, 5 * SHAPE.qkv_width()));
        let mut d_x = d_y.clone();
        rope_backward(SHAPE, &mut d_x, &DOCUMENTS, 7, &rope(SHAPE.head_dim));
        assert_gradient("d_x", &d_x, &x, &d_y, |x| rotated(x, 7));
    }

    #[test]
    fn the_cache_takes_keys_and_values() {
        let qkv = noise::<f32>(1, 5 * SHAPE.qkv_width());
        let width = SHAPE.cache_width();
        let mut cache = vec![0.0; 9 * width];
        cache_append_forward(SHAPE, &qkv, &mut cache, 3);
        assert!(cache[..3 * width].iter().chain(&cache[8 * width..]).all(|&x| x == 0.0));
        for t in 0..5 {
            assert_eq!(
                cache[(3 + t) * width..][..width],
                qkv[t * SHAPE.qkv_width() + 24..][..width]
            );
        }
    }
}
