//! Twin of the packed weights: f16, and groups of 32 neighbours in signed bytes or four bits with an f32 scale each, or in
//! five bits with a width and a zero point.

use super::PackWeights;
use crate::error::Result;
use crate::kernels::WeightFormat;
use crate::twins::{Operands, Twin};
use half::f16;

const GROUP: usize = 32;

/// Words of a packed matrix: all rows, of five bits the fifth ones behind the others, then the scales of all groups.
pub fn pack_weights_forward(format: WeightFormat, matrix: &[f32]) -> Vec<u32> {
    if format == WeightFormat::Int5 {
        return fives(matrix);
    }
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
            WeightFormat::Int5 => {}
        }
    }
    words.extend(scales.iter().map(|scale| scale.to_bits()));
    words
}

/// The ten bits of a width: an exponent of five, as in f16, and five of a mantissa; 0 where it is too small.
fn width_bits(width: f32) -> u32 {
    let (bits, half) = (width.to_bits(), 1 << 17);
    let tie_to_even = half - 1 + ((bits >> 18) & 1);
    let exponent_and_mantissa = (bits + tie_to_even) >> 18;
    let least = (127 - 14) * 32;
    if exponent_and_mantissa < least { 0 } else { (exponent_and_mantissa - least + 32).min(991) }
}

/// Of groups of 32 the lower four bits of each code, then the fifth ones, then widths and zero points.
fn fives(matrix: &[f32]) -> Vec<u32> {
    let (mut low, mut fifth, mut grids) = (vec![], vec![], vec![]);
    for group in matrix.chunks_exact(GROUP) {
        let least = group.iter().copied().fold(0.0f32, f32::min);
        let most = group.iter().copied().fold(0.0f32, f32::max);
        let mut grid = width_bits((most - least) / 31.0 * 32.0) << 6;
        let mut codes = vec![0.0; GROUP];
        if grid > 0 {
            let inverse = 32.0 / width_of(grid) as f32;
            let zero = (-least * inverse * 2.0).round_ties_even().clamp(0.0, 63.0);
            for (code, x) in codes.iter_mut().zip(group) {
                *code = (x * inverse + zero / 2.0).round_ties_even().clamp(0.0, 31.0);
            }
            grid |= zero as u32;
        }
        // Byte j has code j of each four.
        let bits = |each: usize, of: &dyn Fn(u32) -> u32| -> Vec<u32> {
            let word = |some: &[f32]| {
                let place = |i: usize| i % 4 * 8 + i / 4 * each;
                some.iter().enumerate().map(|(i, &code)| of(code as u32) << place(i)).sum()
            };
            codes.chunks_exact(32 / each).map(word).collect()
        };
        low.extend(bits(4, &|code| code % 16));
        fifth.extend(bits(1, &|code| code / 16));
        grids.push(grid);
    }
    let pairs = grids.chunks_exact(2).map(|two| two[0] | two[1] << 16).collect();
    [low, fifth, pairs].concat()
}

fn width_of(grid: u32) -> f64 {
    f16::from_bits((grid >> 6 << 5) as u16).to_f64()
}

/// The `elements` numbers that the words stand for.
pub fn unpack_weights_forward(format: WeightFormat, words: &[u32], elements: usize) -> Vec<f64> {
    let (rows, scales) = words.split_at(format.code_words(elements));
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
        WeightFormat::Int5 => {
            let (fifth, grids) = scales.split_at(elements / 32);
            let value = |i: usize| {
                let (low, high) = (i % 4 * 8 + i / 4 % 2 * 4, i % 4 * 8 + i / 4 % 8);
                let code = rows[i / 8] >> low & 15 | (fifth[i / 32] >> high & 1) << 4;
                let grid = grids[i / 64] >> (i / 32 % 2 * 16) & 0xffff;
                width_of(grid) * (f64::from(code) / 32.0 - f64::from(grid & 63) / 64.0)
            };
            (0..elements).map(value).collect()
        }
    }
}

/// The largest difference that packing may make to a group: half a step, for four bits a whole one to the far end,
/// which the range ends short of, and for five bits to both ends, since the width is rounded, or below the least width.
pub fn packing_error(format: WeightFormat, group: &[f32]) -> f64 {
    let most = group.iter().fold(0.0f64, |most, x| most.max(f64::from(x.abs())));
    match format {
        WeightFormat::F32 => 0.0,
        WeightFormat::F16 => most / 2048.0 + 1e-7,
        WeightFormat::Int8 => most / 127.0 * 0.5001,
        WeightFormat::Int4 => most / 8.0 * 1.0001,
        WeightFormat::Int5 => {
            let widest = |group: &[f32]| {
                let ends = |(least, most): (f32, f32), &x: &f32| (least.min(x), most.max(x));
                let (least, most) = group.iter().fold((0.0, 0.0), ends);
                f64::from(most - least) / 31.0 * 0.76
            };
            group.chunks(GROUP).map(widest).fold(6.2e-5, f64::max)
        }
    }
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
            let group = format.group();
            let mut matrix = noise::<f32>(7, 6 * group);
            matrix[group..2 * group].fill(0.0);
            let words = pack_weights_forward(format, &matrix);
            assert!(words.len() as u64 * 4 <= format.bytes(2, 3 * group), "{format:?}");
            let kept = unpack_weights_forward(format, &words, matrix.len());
            for (group, kept) in matrix.chunks(group).zip(kept.chunks(group)) {
                let most = packing_error(format, group);
                for (x, y) in group.iter().zip(kept) {
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
        let mut values = noise::<f32>(3, 68 * GROUP);
        values[5] = 1e6;
        for (i, x) in values[4 * GROUP..5 * GROUP].iter_mut().enumerate() {
            *x = (i as f32 - 16.0) / 2.0; // ties
        }
        for format in &WeightFormat::ALL[1..] {
            let packed = pack(*format, &values).concat();
            assert_eq!(packed, pack_weights_forward(*format, &values), "{format:?}");
        }
    }
}
