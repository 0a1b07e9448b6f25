//! The elements of a checkpoint as f32. Every weight of a model passes through here.

use crate::error::{Error, Result};
use safetensors::Dtype;

/// Little-endian F32, F16 or BF16 to f32, appended to `values`; four U8 as the bits of one.
///
/// # Errors
/// `invalid-checkpoint` for another type.
pub fn decode(dtype: Dtype, bytes: &[u8], values: &mut Vec<f32>) -> Result<()> {
    match dtype {
        Dtype::F16 => values.extend(halves(bytes).map(from_f16)),
        Dtype::BF16 => values.extend(halves(bytes).map(|bits| f32::from_bits(bits << 16))),
        Dtype::F32 | Dtype::U8 => {
            values.extend(bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)));
        }
        other => {
            let message = format!("dtype {other} cannot be read; F32, F16 and BF16 can");
            return Err(Error::checkpoint(message));
        }
    }
    Ok(())
}

/// Words of 16 bits.
fn halves(bytes: &[u8]) -> impl ExactSizeIterator<Item = u32> {
    bytes.as_chunks().0.iter().map(|&b| u32::from(u16::from_le_bytes(b)))
}

/// The value of f16 bits, subnormal ones too, without a branch: the bits at f32's place are the value times 2^-112.
fn from_f16(bits: u32) -> f32 {
    const BIAS: f32 = f32::from_bits((127 + 112) << 23);
    let magnitude = (bits & 0x7fff) << 13;
    let value = (f32::from_bits(magnitude) * BIAS).to_bits();
    // Infinities and NaN have the largest exponent, which is f32's largest one there.
    let special = if magnitude >= 0x0f80_0000 { 0x7f80_0000 } else { 0 };
    f32::from_bits((bits & 0x8000) << 16 | value | special)
}

/// Whether no value is infinite or NaN.
pub fn all_finite(values: &[f32]) -> bool {
    let largest = values.iter().fold(0, |largest, x| (x.to_bits() & 0x7fff_ffff).max(largest));
    largest < f32::INFINITY.to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_f16_is_what_half_makes_of_it() {
        let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
        let mut values = vec![];
        decode(Dtype::F16, &all, &mut values).unwrap();
        for (bits, value) in (0..=u16::MAX).zip(&values) {
            let expected = half::f16::from_bits(bits).to_f32();
            let same = value.to_bits() == expected.to_bits() || value.is_nan() && expected.is_nan();
            assert!(same, "{bits:#x}: {value}, not {expected}");
            assert_eq!(value.is_sign_negative(), expected.is_sign_negative(), "{bits:#x}");
        }
        assert_eq!(values.len(), 1 << 16);
    }

    #[test]
    fn one_number_that_is_not_finite_is_found() {
        for wrong in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN] {
            for at in 0..9 {
                let mut values = [f32::MAX, f32::MIN, 0.0, -0.0, 1e-45, 1.0, 2.0, 3.0, 4.0];
                assert!(all_finite(&values));
                values[at] = wrong;
                assert!(!all_finite(&values), "{wrong} at {at}");
            }
        }
        assert!(all_finite(&[]));
    }
}
