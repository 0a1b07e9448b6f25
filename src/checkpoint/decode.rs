//! Converts the elements of a checkpoint to f32. Loading a model converts every weight, so wasm does it eight at a time with
//! its 128-bit vectors, which all browsers with WebGPU have.

use crate::error::{Error, Result};
use safetensors::Dtype;

/// f16's exponent is 112 less than f32's: bits of an f16 at f32's place are its value times 2^-112.
const UNBIAS: f32 = f32::from_bits((127 + 112) << 23);
/// Where the bits of f16's infinity lie in f32, and the bits of f32's.
const INFINITE: u32 = 0x7c00 << 13;
const INFINITY: u32 = 0x7f80_0000;

/// Replaces the contents of `values` by the elements, which are little-endian F32, F16 or BF16. Of U8, four bytes are the bits
/// of one f32.
///
/// # Errors
/// `invalid-checkpoint` for another type.
pub fn decode(dtype: Dtype, bytes: &[u8], values: &mut Vec<f32>) -> Result<()> {
    match dtype {
        Dtype::F16 => halves(bytes, values, vectors::from_f16, from_f16),
        Dtype::BF16 => halves(bytes, values, vectors::from_bf16, from_bf16),
        Dtype::F32 | Dtype::U8 => {
            values.clear();
            values.extend(bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)));
        }
        other => {
            let message = format!("dtype {other} cannot be read; F32, F16 and BF16 can");
            return Err(Error::checkpoint(message));
        }
    }
    Ok(())
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
fn from_f16(bits: u32) -> f32 {
    let magnitude = (bits & 0x7fff) << 13;
    let value = (f32::from_bits(magnitude) * UNBIAS).to_bits();
    let special = if magnitude >= INFINITE { INFINITY } else { 0 };
    f32::from_bits((bits & 0x8000) << 16 | value | special)
}

fn from_bf16(bits: u32) -> f32 {
    f32::from_bits(bits << 16)
}

#[cfg(not(target_arch = "wasm32"))]
mod vectors {
    pub fn from_f16(halves: &[[u8; 16]], values: &mut [[f32; 8]]) {
        each(halves, values, super::from_f16);
    }

    pub fn from_bf16(halves: &[[u8; 16]], values: &mut [[f32; 8]]) {
        each(halves, values, super::from_bf16);
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

    /// Of every number, at every place of eight.
    #[test]
    fn halves_are_what_the_crate_of_that_name_makes_of_them() {
        type Oracle = fn(u16) -> f32;
        let f16: Oracle = |bits| half::f16::from_bits(bits).to_f32();
        let bf16: Oracle = |bits| half::bf16::from_bits(bits).to_f32();
        for (dtype, oracle) in [(Dtype::F16, f16), (Dtype::BF16, bf16)] {
            for first in 0..8 {
                let numbers = || first..=u16::MAX;
                let bytes: Vec<u8> = numbers().flat_map(u16::to_le_bytes).collect();
                let mut values = vec![1.0; 9];
                decode(dtype, &bytes, &mut values).unwrap();
                assert_eq!(values.len(), numbers().len());
                for (bits, value) in numbers().zip(values) {
                    let expected = oracle(bits);
                    let same = value.to_bits() == expected.to_bits();
                    assert!(
                        same || value.is_nan() && expected.is_nan(),
                        "{dtype} {bits:#x}: {value}"
                    );
                }
            }
        }
    }
}
