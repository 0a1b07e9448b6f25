//! Twins of the packed key-value caches: f16, and signed bytes with a scale per head.

use super::attention::AttentionShape;
use half::f16;

/// Rows `k heads | v heads` as words of two f16 each.
pub fn cache_append_f16(rows: &[f32]) -> Vec<u32> {
    let bits = |x: f32| u32::from(f16::from_f32(x).to_bits());
    rows.chunks_exact(2).map(|pair| bits(pair[0]) | bits(pair[1]) << 16).collect()
}

/// What [`cache_append_f16`] kept.
pub fn cache_expand_f16(words: &[u32]) -> Vec<f64> {
    let half = |bits: u32| f16::from_bits(bits as u16).to_f64();
    words.iter().flat_map(|&word| [half(word & 0xffff), half(word >> 16)]).collect()
}

/// Rows `k heads | v heads` as words of four signed bytes each, behind those of a row the scale of
/// each head as f32: the largest magnitude over 127.
pub fn cache_append_int8(shape: AttentionShape, rows: &[f32]) -> Vec<u32> {
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
pub fn cache_expand_int8(shape: AttentionShape, words: &[u32]) -> Vec<f64> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::twins::check::{assert_close, noise};

    const SHAPE: AttentionShape = AttentionShape::new(4, 2, 8, 3);

    #[test]
    fn halves_keep_eleven_bits() {
        let rows = noise::<f32>(1, 3 * SHAPE.cache_width());
        let kept = cache_expand_f16(&cache_append_f16(&rows));
        for (x, y) in rows.iter().zip(kept) {
            assert!((f64::from(*x) - y).abs() <= f64::from(x.abs()) / 2048.0 + 1e-7, "{x} as {y}");
        }
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
