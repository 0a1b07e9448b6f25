//! Twin of the packed weights: f16, and groups of 32 neighbours in signed bytes or four bits with an
//! f32 scale each.

use super::PackWeights;
use crate::error::Result;
use crate::kernels::WeightFormat;
use crate::twins::{Operands, Twin};
use half::f16;

const GROUP: usize = 32;

/// Words of a packed matrix: all rows, then the scales of all groups.
pub fn pack_weights_forward(format: WeightFormat, matrix: &[f32]) -> Vec<u32> {
    let mut words = vec![];
    let mut scales = vec![];
    for group in matrix.chunks_exact(GROUP) {
        let larger = |a: f32, &b: &f32| if b.abs() > a.abs() { b } else { a };
        let extreme = group.iter().fold(0.0, larger);
        let inverse = |scale: f32| if extreme.abs() < 1e-30 { 0.0 } else { 1.0 / scale };
        match format {
            WeightFormat::F32 => words.extend(group.iter().map(|x| x.to_bits())),
            WeightFormat::F16 => {
                let bits = |x: f32| u32::from(f16::from_f32(x.clamp(-65504.0, 65504.0)).to_bits());
                words.extend(group.chunks_exact(2).map(|two| bits(two[0]) | bits(two[1]) << 16));
            }
            WeightFormat::Int8 => {
                let scale = extreme.abs() / 127.0;
                let byte = |x: f32| (x * inverse(scale)).round_ties_even().clamp(-127.0, 127.0);
                let word = |four: &[f32]| {
                    u32::from_le_bytes([0, 1, 2, 3].map(|i| (byte(four[i]) as i8).cast_unsigned()))
                };
                words.extend(group.chunks_exact(4).map(word));
                scales.push(scale);
            }
            WeightFormat::Int4 => {
                let scale = extreme / -8.0;
                let nibble = |x: f32| (x * inverse(scale)).round_ties_even() + 8.0;
                let word = |eight: &[f32]| {
                    let shifted =
                        |(i, &x): (usize, &f32)| (nibble(x).clamp(0.0, 15.0) as u32) << (4 * i);
                    eight.iter().enumerate().map(shifted).sum::<u32>()
                };
                words.extend(group.chunks_exact(8).map(word));
                scales.push(scale);
            }
        }
    }
    words.extend(scales.iter().map(|scale| scale.to_bits()));
    words
}

/// The `elements` numbers that the words stand for.
pub fn unpack_weights_forward(format: WeightFormat, words: &[u32], elements: usize) -> Vec<f64> {
    let (rows, scales) = words.split_at(elements * 4 / format.elements());
    let scaled = |(i, n): (usize, f64)| n * f64::from(f32::from_bits(scales[i / GROUP]));
    match format {
        WeightFormat::F32 => rows.iter().map(|&word| f64::from(f32::from_bits(word))).collect(),
        WeightFormat::F16 => {
            let half = |bits: u32| f16::from_bits(bits as u16).to_f64();
            rows.iter().flat_map(|&word| [half(word & 0xffff), half(word >> 16)]).collect()
        }
        WeightFormat::Int8 => {
            let bytes = rows.iter().flat_map(|word| word.to_le_bytes());
            bytes.map(|byte| f64::from(byte.cast_signed())).enumerate().map(scaled).collect()
        }
        WeightFormat::Int4 => {
            let nibbles = rows.iter().flat_map(|word| (0..8).map(move |i| word >> (4 * i) & 15));
            nibbles.map(|n| f64::from(n) - 8.0).enumerate().map(scaled).collect()
        }
    }
}

/// The largest difference that packing may make to each number of a group: half a step, and for four bits a whole one to
/// the far end, which the range ends short of. That is where the number of the largest magnitude is not.
pub fn packing_errors(format: WeightFormat, group: &[f32]) -> Vec<f64> {
    let larger = |a: f32, &b: &f32| if b.abs() > a.abs() { b } else { a };
    let extreme = f64::from(group.iter().fold(0.0, larger));
    let most = extreme.abs();
    let allowed = |x: f64| match format {
        WeightFormat::F32 => 0.0,
        WeightFormat::F16 => most / 2048.0 + 1e-7,
        WeightFormat::Int8 => most / 127.0 * 0.5001,
        WeightFormat::Int4 if x * extreme < 0.0 && x.abs() > most / 8.0 * 7.0 => {
            most / 8.0 * 1.0001
        }
        WeightFormat::Int4 => most / 8.0 * 0.5001,
    };
    group.iter().map(|&x| allowed(f64::from(x))).collect()
}

impl Twin for PackWeights {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Self { format, rows, columns } = *self;
        let elements = rows * columns;
        let words = pack_weights_forward(format, on.first("matrix", elements)?);
        on.u32_mut("packed")?[..words.len()].copy_from_slice(&words);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::pack;
    use crate::twins::check::noise;

    #[test]
    fn packing_errs_by_half_a_step() {
        for format in WeightFormat::ALL {
            let mut matrix = noise::<f32>(7, 6 * GROUP);
            matrix[GROUP..2 * GROUP].fill(0.0);
            let words = pack_weights_forward(format, &matrix);
            assert!(words.len() as u64 * 4 <= format.bytes(2, 3 * GROUP), "{format:?}");
            let kept = unpack_weights_forward(format, &words, matrix.len());
            for (group, kept) in matrix.chunks(GROUP).zip(kept.chunks(GROUP)) {
                for ((x, y), most) in group.iter().zip(kept).zip(packing_errors(format, group)) {
                    assert!((f64::from(*x) - y).abs() <= most, "{format:?}: {x} as {y}");
                }
            }
        }
    }

    #[test]
    fn the_largest_magnitude_keeps_its_value_in_four_bits() {
        let mut matrix = vec![0.25f32; GROUP];
        matrix[5] = -3.0;
        let words = pack_weights_forward(WeightFormat::Int4, &matrix);
        assert_eq!(unpack_weights_forward(WeightFormat::Int4, &words, GROUP)[5], -3.0);
    }

    /// The twin is what kernels are held to.
    #[test]
    fn the_host_packs_as_the_twin_does() {
        let mut values = noise::<f32>(3, 67 * GROUP);
        values[5] = 1e6;
        for (i, x) in values[4 * GROUP..5 * GROUP].iter_mut().enumerate() {
            *x = (i as f32 - 16.0) / 2.0; // ties
        }
        for format in [WeightFormat::F16, WeightFormat::Int8, WeightFormat::Int4] {
            let (mut words, scales) = pack(format, &values);
            words.extend(scales.iter().map(|scale| scale.to_bits()));
            assert_eq!(words, pack_weights_forward(format, &values), "{format:?}");
        }
    }
}
