//! Converts the elements of a checkpoint to f32, and looks for those that are not finite.

/// f16's exponent is 112 less than f32's: bits of an f16 at f32's place are its value times 2^-112.
const UNBIAS: f32 = f32::from_bits((127 + 112) << 23);
/// Where the bits of f16's infinity lie in f32, and the bits of f32's.
const INFINITE: u32 = 0x7c00 << 13;
const INFINITY: u32 = 0x7f80_0000;
const SIGN: u32 = 1 << 31;
/// Bits of f16's infinity.
const INFINITE_HALF: u16 = 0x7c00;

/// Replaces the contents of `values` by numbers in f32, little endian as every host with WebGPU.
pub fn from_f32(bytes: &[u8], values: &mut Vec<f32>) {
    values.resize(bytes.len() / 4, 0.0);
    let whole = 4 * values.len();
    bytemuck::cast_slice_mut(values).copy_from_slice(&bytes[..whole]);
}

/// Replaces the contents of `values` by numbers in f16, little endian.
pub fn from_f16(bytes: &[u8], values: &mut Vec<f32>) {
    halves(bytes, values, vectors::from_f16, one_from_f16);
}

/// Replaces the contents of `values` by numbers in bf16, little endian.
pub fn from_bf16(bytes: &[u8], values: &mut Vec<f32>) {
    halves(bytes, values, vectors::from_bf16, one_from_bf16);
}

/// Whether no number is infinite or NaN.
pub fn all_finite(values: &[f32]) -> bool {
    let (eights, rest) = values.as_chunks();
    let magnitude = |value: &f32| value.to_bits() & !SIGN;
    vectors::most(eights) < INFINITY && rest.iter().all(|value| magnitude(value) < INFINITY)
}

/// The same of f16, little endian.
pub fn halves_are_finite(bytes: &[u8]) -> bool {
    let (eights, rest) = bytes.as_chunks();
    let magnitude = |&half: &[u8; 2]| u16::from_le_bytes(half) & 0x7fff;
    let rest = rest.as_chunks().0;
    vectors::most_half(eights) < INFINITE_HALF
        && rest.iter().all(|half| magnitude(half) < INFINITE_HALF)
}

/// Converts by eights, and what is left singly.
fn halves(
    bytes: &[u8],
    values: &mut Vec<f32>,
    eights: fn(&[[u8; 16]], &mut [[f32; 8]]),
    one: fn(u32) -> f32,
) {
    values.resize(bytes.len() / 2, 0.0);
    let (whole, rest) = bytes.as_chunks();
    let (many, few) = values.as_chunks_mut();
    eights(whole, many);
    for (value, &bits) in few.iter_mut().zip(rest.as_chunks().0) {
        *value = one(u16::from_le_bytes(bits).into());
    }
}

/// The value of f16 bits, subnormal ones too.
fn one_from_f16(bits: u32) -> f32 {
    let magnitude = (bits & 0x7fff) << 13;
    let value = (f32::from_bits(magnitude) * UNBIAS).to_bits();
    let special = if magnitude >= INFINITE { INFINITY } else { 0 };
    f32::from_bits((bits & 0x8000) << 16 | value | special)
}

fn one_from_bf16(bits: u32) -> f32 {
    f32::from_bits(bits << 16)
}

#[cfg(not(target_arch = "wasm32"))]
mod vectors {
    pub fn from_f16(halves: &[[u8; 16]], values: &mut [[f32; 8]]) {
        each(halves, values, super::one_from_f16);
    }

    pub fn from_bf16(halves: &[[u8; 16]], values: &mut [[f32; 8]]) {
        each(halves, values, super::one_from_bf16);
    }

    /// The largest bits without their sign.
    pub fn most(values: &[[f32; 8]]) -> u32 {
        values.as_flattened().iter().fold(0, |most, value| most.max(value.to_bits() & !super::SIGN))
    }

    pub fn most_half(halves: &[[u8; 16]]) -> u16 {
        let halves = halves.as_flattened().as_chunks().0;
        halves.iter().fold(0, |most, &half| most.max(u16::from_le_bytes(half) & 0x7fff))
    }

    fn each(halves: &[[u8; 16]], values: &mut [[f32; 8]], one: impl Fn(u32) -> f32) {
        for (eight, bytes) in values.iter_mut().zip(halves) {
            for (value, &bits) in eight.iter_mut().zip(bytes.as_chunks().0) {
                *value = one(u16::from_le_bytes(bits).into());
            }
        }
    }
}

#[cfg(target_arch = "wasm32")]
mod vectors {
    use super::{INFINITE, INFINITY, UNBIAS};
    use core::arch::wasm32::*;

    #[target_feature(enable = "simd128")]
    pub fn from_f16(halves: &[[u8; 16]], values: &mut [[f32; 8]]) {
        for (eight, bytes) in values.iter_mut().zip(halves) {
            *eight = bytemuck::cast(extended(bytes).map(|bits| {
                let magnitude = u32x4_shl(v128_and(bits, u32x4_splat(0x7fff)), 13);
                let value = f32x4_mul(magnitude, f32x4_splat(UNBIAS));
                let special = u32x4_ge(magnitude, u32x4_splat(INFINITE));
                let special = v128_and(special, u32x4_splat(INFINITY));
                let sign = u32x4_shl(v128_and(bits, u32x4_splat(0x8000)), 16);
                v128_or(v128_or(sign, value), special)
            }));
        }
    }

    #[target_feature(enable = "simd128")]
    pub fn from_bf16(halves: &[[u8; 16]], values: &mut [[f32; 8]]) {
        for (eight, bytes) in values.iter_mut().zip(halves) {
            *eight = bytemuck::cast(extended(bytes).map(|bits| u32x4_shl(bits, 16)));
        }
    }

    /// The largest bits without their sign.
    #[target_feature(enable = "simd128")]
    pub fn most(values: &[[f32; 8]]) -> u32 {
        let mut most = u32x4_splat(0);
        for eight in values {
            let [low, high]: [v128; 2] = bytemuck::cast(*eight);
            // A sign shifted out leaves the order of magnitudes as it is.
            most = u32x4_max(most, u32x4_max(u32x4_shl(low, 1), u32x4_shl(high, 1)));
        }
        let most: [u32; 4] = bytemuck::cast(most);
        most.into_iter().fold(0, u32::max) >> 1
    }

    #[target_feature(enable = "simd128")]
    pub fn most_half(halves: &[[u8; 16]]) -> u16 {
        let mut most = u16x8_splat(0);
        for eight in halves {
            most = u16x8_max(most, u16x8_shl(bytemuck::cast(*eight), 1));
        }
        let most: [u16; 8] = bytemuck::cast(most);
        most.into_iter().fold(0, u16::max) >> 1
    }

    /// Eight words of 16 bits as two vectors of 32.
    #[target_feature(enable = "simd128")]
    fn extended(bytes: &[u8; 16]) -> [v128; 2] {
        let bits = bytemuck::cast(*bytes);
        [u32x4_extend_low_u16x8(bits), u32x4_extend_high_u16x8(bits)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number that is not finite, at every place, and none.
    #[test]
    fn what_is_not_finite_is_found() {
        let halves =
            |bits: &[u16]| bits.iter().flat_map(|bits| bits.to_le_bytes()).collect::<Vec<_>>();
        for length in [0, 1, 7, 8, 9, 31] {
            assert!(all_finite(&vec![f32::MIN; length]));
            assert!(halves_are_finite(&halves(&vec![0xfbff; length])));
            for place in 0..length {
                for (value, half) in
                    [(f32::NAN, 0xfe00), (f32::NEG_INFINITY, 0xfc00), (f32::INFINITY, 0x7c00)]
                {
                    let mut values = vec![1.0; length];
                    let mut bits = vec![0x3c00; length];
                    (values[place], bits[place]) = (value, half);
                    assert!(!all_finite(&values) && !halves_are_finite(&halves(&bits)));
                }
            }
        }
    }

    /// Of every number, at every place of eight.
    #[test]
    fn halves_are_what_the_crate_of_that_name_makes_of_them() {
        type Oracle = fn(u16) -> f32;
        let f16: Oracle = |bits| half::f16::from_bits(bits).to_f32();
        let bf16: Oracle = |bits| half::bf16::from_bits(bits).to_f32();
        type Convert = fn(&[u8], &mut Vec<f32>);
        let both: [(&str, Convert, Oracle); 2] =
            [("f16", from_f16, f16), ("bf16", from_bf16, bf16)];
        for (name, convert, oracle) in both {
            for first in 0..8 {
                let numbers = || first..=u16::MAX;
                let bytes: Vec<u8> = numbers().flat_map(u16::to_le_bytes).collect();
                let mut values = vec![1.0; 9];
                convert(&bytes, &mut values);
                assert_eq!(values.len(), numbers().len());
                for (bits, value) in numbers().zip(values) {
                    let expected = oracle(bits);
                    let same = value.to_bits() == expected.to_bits();
                    assert!(
                        same || value.is_nan() && expected.is_nan(),
                        "{name} {bits:#x}: {value}"
                    );
                }
            }
        }
    }
}
