//! Random numbers as a pure function of a key and a counter: every adapter, thread and platform
//! draws the same stream, and any element of it can be had without the ones before.

/// One block of Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as
/// 1, 2, 3", SC11): integer arithmetic only, so a WGSL twin gives the same bits.
pub fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    for _ in 0..10 {
        let [low0, high0] = wide_product(MULTIPLIERS[0], counter[0]);
        let [low1, high1] = wide_product(MULTIPLIERS[1], counter[2]);
        counter = [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

fn wide_product(a: u32, b: u32) -> [u32; 2] {
    split(u64::from(a) * u64::from(b))
}

/// Low word, high word: how a `u64` seed or index becomes words of a key or counter.
pub const fn split(x: u64) -> [u32; 2] {
    [x as u32, (x >> 32) as u32]
}

/// Uniform in [0, 1) from the upper 24 bits: every value is exact in f32.
#[cfg(any(test, feature = "testing"))]
pub fn uniform(bits: u32) -> f32 {
    (bits >> 8) as f32 * (1.0 / (1 << 24) as f32)
}

/// Uniform integer in 0..bound from 64 random bits (fixed-point product; the bias is below
/// bound / 2⁶⁴).
pub fn below(low: u32, high: u32, bound: u64) -> u64 {
    let bits = u128::from(high) << 32 | u128::from(low);
    ((bits * u128::from(bound)) >> 64) as u64
}

/// Fills `out` with elements `offset..` of the initial weights `(seed, stream)`: nearly normal, mean
/// 0, standard deviation `std`. An element is the sum of the eight 16-bit halves of its own block,
/// brought to its deviation by one product: exact up to that product, so that `00_initialize.wgsl`
/// gives the same bits on every adapter that rounds to nearest. (The excess kurtosis is -0.15, the tails end at 4.9
/// deviations.)
pub fn fill_weights(seed: u64, stream: u32, offset: u32, std: f64, out: &mut [f32]) {
    let factor = weight_factor(std);
    for (index, x) in (offset..).zip(out) {
        let words = philox([index, 0, stream, WEIGHTS], split(seed));
        let sum: u32 = words.iter().map(|word| (word & 0xffff) + (word >> 16)).sum();
        *x = (sum as i32 - MEAN_OF_HALVES) as f32 * factor;
    }
}

/// Fills `out` with elements `offset..` of initial weights uniform within ± `bound`, of a stream apart
/// from those of [`fill_weights`].
pub fn fill_uniform(seed: u64, stream: u32, offset: u32, bound: f64, out: &mut [f32]) {
    for (index, x) in (offset..).zip(out) {
        let [word, ..] = philox([index, 0, stream, UNIFORM_WEIGHTS], split(seed));
        // The middle of one of 2^24 steps: no value is the bound itself, and none is favoured.
        let share = (f64::from(word >> 8) + 0.5) / f64::from(1 << 23) - 1.0;
        *x = (share * bound) as f32;
    }
}

/// Keeps the stream of initial weights apart from others of the same seed.
pub const WEIGHTS: u32 = 0x7765_6967;
const UNIFORM_WEIGHTS: u32 = 0x756e_6966;
/// Mean of the sum of eight numbers uniform in 0..65536.
const MEAN_OF_HALVES: i32 = 4 * 0xffff;

/// What turns such a sum into a weight of deviation `std`.
pub fn weight_factor(std: f64) -> f32 {
    let variance = 8.0 * (65536.0 * 65536.0 - 1.0) / 12.0;
    (std / libm::sqrt(variance)) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_gives_the_published_answers() {
        // The philox4x32-10 lines of Random123's kat_vectors.
        for (counter, key, answer) in [
            ([0; 4], [0; 2], [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]),
            ([!0; 4], [!0; 2], [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]),
            (
                [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344],
                [0xa4093822, 0x299f31d0],
                [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1],
            ),
        ] {
            assert_eq!(philox(counter, key), answer);
        }
    }

    #[test]
    fn uniform_spans_the_half_open_interval() {
        assert_eq!(uniform(0), 0.0);
        assert_eq!(uniform(1 << 31), 0.5);
        assert!(uniform(u32::MAX) < 1.0);
        assert_eq!(below(0, 0, 7), 0);
        assert_eq!(below(!0, !0, 7), 6);
        assert_eq!(below(0, 1 << 31, u64::MAX), u64::MAX >> 1);
    }

    #[test]
    fn weights_have_the_moments_of_a_normal() {
        let mut x = vec![0.0; 200_000];
        fill_weights(42, 3, 0, 0.5, &mut x);
        let moment =
            |k: i32| x.iter().map(|&v| f64::from(v * 2.0).powi(k)).sum::<f64>() / x.len() as f64;
        for (k, expected, tolerance) in
            [(1, 0.0, 0.01), (2, 1.0, 0.015), (3, 0.0, 0.04), (4, 2.85, 0.06)]
        {
            assert!((moment(k) - expected).abs() < tolerance, "moment {k}: {}", moment(k));
        }
    }

    #[test]
    fn uniform_weights_fill_their_bounds_evenly() {
        let mut x = vec![0.0; 200_000];
        fill_uniform(42, 3, 0, 0.25, &mut x);
        let moment =
            |k: i32| x.iter().map(|&v| f64::from(v * 4.0).powi(k)).sum::<f64>() / x.len() as f64;
        for (k, expected, tolerance) in [(1, 0.0, 0.005), (2, 1.0 / 3.0, 0.003), (4, 0.2, 0.003)] {
            assert!((moment(k) - expected).abs() < tolerance, "moment {k}: {}", moment(k));
        }
        assert!(x.iter().all(|x| x.abs() < 0.25));
        assert!(x.iter().any(|x| *x > 0.2499) && x.iter().any(|x| *x < -0.2499));
        let mut piece = vec![0.0; 100];
        fill_uniform(42, 3, 500, 0.25, &mut piece);
        assert_eq!(piece, x[500..600]);
        assert_eq!([x[0], x[1], x[2]].map(f32::to_bits), PINNED_UNIFORM);
    }

    #[test]
    fn weights_may_be_filled_in_pieces() {
        let mut whole = vec![0.0; 103];
        fill_weights(7, 1, 5, 1.0, &mut whole);
        let mut pieces = vec![0.0; 103];
        let mut start = 0;
        for length in [1, 2, 5, 40, 55] {
            fill_weights(7, 1, 5 + start as u32, 1.0, &mut pieces[start..start + length]);
            start += length;
        }
        assert_eq!(whole, pieces);
        for (seed, stream) in [(7, 2), (7 | 1 << 40, 1)] {
            let mut other = vec![0.0; 103];
            fill_weights(seed, stream, 5, 1.0, &mut other);
            assert_ne!(whole, other);
        }
    }

    #[test]
    fn the_bits_of_the_weights_are_pinned() {
        // Weights made from a seed must not change between releases or platforms.
        let mut x = [0.0; 4];
        fill_weights(42, 0, 0, 0.02, &mut x);
        assert_eq!(x.map(f32::to_bits), PINNED);
    }

    const PINNED_UNIFORM: [u32; 3] = [3_193_182_553, 3_160_346_032, 3_151_872_544];
    const PINNED: [u32; 4] = [3_166_492_650, 3_153_873_155, 3_146_677_408, 3_172_577_656];
}
