//! Packing on the host, group by group: what `08_pack_weights.wgsl` does on a GPU. A division rounds the same way on
//! every processor, and need not on a GPU, so that a checkpoint packed here gives the same bytes everywhere.

use super::{GROUP, WeightFormat};
use half::f16;

/// The largest magnitude that f16 holds.
const HALF_MOST: f32 = 65504.0;
/// Below this the reciprocal of a scale would overflow: such a group is zero.
const VANISHING: f32 = 1e-30;

/// The words of whole groups of finite numbers, and a scale for each group where the format has scales.
pub fn pack(format: WeightFormat, values: &[f32]) -> (Vec<u32>, Vec<f32>) {
    let mut words = Vec::with_capacity(4 * format.vectors(values.len()));
    let mut scales = vec![];
    for group in values.as_chunks::<GROUP>().0 {
        let larger = |a: f32, &b: &f32| if b.abs() > a.abs() { b } else { a };
        let extreme = group.iter().fold(0.0, larger);
        let vanishes = extreme.abs() < VANISHING;
        let scale = match format {
            WeightFormat::F32 | WeightFormat::F16 => {
                words.extend(group.as_chunks().0.iter().map(|&pair| halves(pair)));
                continue;
            }
            WeightFormat::Int8 => extreme.abs() / 127.0,
            WeightFormat::Int4 => extreme / -8.0,
        };
        let inverse = if vanishes { 0.0 } else { 1.0 / scale };
        scales.push(if vanishes { 0.0 } else { scale });
        let steps = |x: f32| (x * inverse).round_ties_even();
        if format == WeightFormat::Int8 {
            let byte = |x: f32| (steps(x).clamp(-127.0, 127.0) as i8).cast_unsigned();
            let word = |four: &[f32; 4]| u32::from_le_bytes(four.map(byte));
            words.extend(group.as_chunks().0.iter().map(word));
        } else {
            let nibble = |x: f32| (steps(x) + 8.0).clamp(0.0, 15.0) as u32;
            let word =
                |eight: &[f32; 8]| eight.iter().rev().fold(0, |word, &x| word << 4 | nibble(x));
            words.extend(group.as_chunks().0.iter().map(word));
        }
    }
    (words, scales)
}

/// Whether a format holds codes as they are. Each group of codes has a factor of its own.
pub fn holds_codes(format: WeightFormat, codes: &[i8]) -> bool {
    match format {
        WeightFormat::F32 | WeightFormat::F16 => false,
        WeightFormat::Int8 => true,
        WeightFormat::Int4 => codes.iter().all(|code| (-8..8).contains(code)),
    }
}

/// The words of codes that the format holds.
pub fn pack_codes(format: WeightFormat, codes: &[i8]) -> Vec<u32> {
    if format == WeightFormat::Int8 {
        let word = |four: &[i8; 4]| u32::from_le_bytes(four.map(i8::cast_unsigned));
        return codes.as_chunks().0.iter().map(word).collect();
    }
    let nibble = |code: i8| u32::from((code + 8).cast_unsigned());
    let word = |eight: &[i8; 8]| eight.iter().rev().fold(0, |word, &x| word << 4 | nibble(x));
    codes.as_chunks().0.iter().map(word).collect()
}

/// The values of whole groups that are packed.
pub fn unpack(format: WeightFormat, words: &[u32], scales: &[f32]) -> Vec<f32> {
    let each = format.elements() / 4;
    let value = |i: usize| {
        let bits = words[i / each] >> (i % each * (32 / each));
        match format {
            WeightFormat::F32 => f32::from_bits(bits),
            WeightFormat::F16 => f16::from_bits(bits as u16).to_f32(),
            WeightFormat::Int8 => f32::from(bits as i8) * scales[i / GROUP],
            WeightFormat::Int4 => ((bits & 15) as f32 - 8.0) * scales[i / GROUP],
        }
    };
    (0..words.len() * each).map(value).collect()
}

/// What f16 cannot hold is bounded to what it can.
fn halves(pair: [f32; 2]) -> u32 {
    let bits = |x: f32| u32::from(f16::from_f32(x.clamp(-HALF_MOST, HALF_MOST)).to_bits());
    bits(pair[0]) | bits(pair[1]) << 16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is packed again from its values keeps its codes.
    #[test]
    fn codes_come_back_from_their_values() {
        let values: Vec<f32> = (0..3 * GROUP).map(|i| libm::sinf(i as f32) / 3.0).collect();
        // With four bits the far end of the other sign is a step away: 1/3 over 8.
        for (format, apart) in
            [(WeightFormat::F16, 2e-4), (WeightFormat::Int8, 2e-3), (WeightFormat::Int4, 0.042)]
        {
            let (words, scales) = pack(format, &values);
            let unpacked = unpack(format, &words, &scales);
            assert!(
                unpacked.iter().zip(&values).all(|(a, b)| (a - b).abs() <= apart),
                "{format:?}"
            );
            assert_eq!(pack(format, &unpacked).0, words, "{format:?}");
        }
    }

    /// Values of codes and factors pack to these codes, where each group has the extreme one.
    #[test]
    fn codes_are_packed_as_their_values_are() {
        let mut codes: Vec<i8> = (0..3 * GROUP).map(|i| ((i * 37) % 15) as i8 - 7).collect();
        codes.iter_mut().step_by(GROUP).for_each(|code| *code = -8);
        let scales = [0.5, -0.037, 3e-6];
        let values: Vec<f32> =
            codes.iter().enumerate().map(|(i, &c)| f32::from(c) * scales[i / GROUP]).collect();
        let (words, found) = pack(WeightFormat::Int4, &values);
        assert_eq!((pack_codes(WeightFormat::Int4, &codes), &scales[..]), (words, &found[..]));
        let byte = pack_codes(WeightFormat::Int8, &[-1, 2, -128, 127]);
        assert_eq!(byte, [0x7f80_02ff]);
        let nibbles = pack_codes(WeightFormat::Int4, &[-8, 7, 0, 1, -1, 2, 3, 4]);
        assert_eq!(nibbles, [0xcba7_98f0]);
        for (format, code, held) in [
            (WeightFormat::Int4, 7, true),
            (WeightFormat::Int4, 8, false),
            (WeightFormat::Int8, 8, true),
            (WeightFormat::F16, 1, false),
        ] {
            assert_eq!(holds_codes(format, &[0, code]), held, "{format:?} {code}");
        }
    }

    #[test]
    fn a_group_that_vanishes_is_zero() {
        let (words, scales) = pack(WeightFormat::Int4, &[1e-35; GROUP]);
        assert_eq!((words, scales), (vec![0x8888_8888; 4], vec![0.0]));
    }
}
