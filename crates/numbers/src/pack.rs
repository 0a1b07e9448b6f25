//! Packing on the host, group by group: what `08_pack_weights.wgsl` does on a GPU. A division rounds the same way on
//! every processor, and need not on a GPU, so that a checkpoint packed here gives the same bytes everywhere.
//!
//! Loading a model packs every weight, so wasm does it with its 128-bit vectors, which all browsers with WebGPU have.

#[cfg_attr(target_arch = "wasm32", path = "pack/vectors.rs")]
#[cfg_attr(not(target_arch = "wasm32"), path = "pack/scalars.rs")]
pub(super) mod lanes;

use crate::{GROUP, WeightFormat};
use half::f16;

/// Below this the reciprocal of a scale would overflow: such a group is zero.
const VANISHING: f32 = 1e-30;

/// Neighbours that share a scale.
type Group = [f32; GROUP];

/// The words of whole groups of finite numbers, and a scale for each group where the format has scales.
pub fn pack(format: WeightFormat, values: &[f32]) -> (Vec<u32>, Vec<f32>) {
    let groups = values.as_chunks::<GROUP>().0;
    let mut words = vec![0; 4 * format.vectors(values.len())];
    if matches!(format, WeightFormat::F32 | WeightFormat::F16) {
        for (group, words) in groups.iter().zip(words.as_chunks_mut().0) {
            lanes::halves(group, words);
        }
        return (words, vec![]);
    }
    let int8 = format == WeightFormat::Int8;
    let each = 4 * format.vectors(GROUP);
    let mut scales = Vec::with_capacity(groups.len());
    for (group, words) in groups.iter().zip(words.chunks_exact_mut(each)) {
        let extreme = lanes::extreme(group);
        let scale = if int8 { extreme.abs() / 127.0 } else { extreme / -8.0 };
        let vanishes = extreme.abs() < VANISHING;
        scales.push(if vanishes { 0.0 } else { scale });
        let inverse = if vanishes { 0.0 } else { 1.0 / scale };
        if let Some(words) = words.first_chunk_mut().filter(|_| int8) {
            lanes::bytes(group, inverse, words);
        } else if let Some(words) = words.first_chunk_mut() {
            lanes::nibbles(group, inverse, words);
        }
    }
    (words, scales)
}

/// Whether a format holds codes as they are, in whole groups. Each group has a factor of its own.
pub fn holds_codes(format: WeightFormat, codes: &[i8]) -> bool {
    match format {
        WeightFormat::F32 | WeightFormat::F16 => false,
        WeightFormat::Int8 => true,
        WeightFormat::Int4 => {
            for group in codes.as_chunks().0 {
                if !lanes::in_four_bits(group) {
                    return false;
                }
            }
            true
        }
    }
}

/// The words of whole groups of codes that the format holds.
pub fn pack_codes(format: WeightFormat, codes: &[i8]) -> Vec<u32> {
    if format == WeightFormat::Int8 {
        return bytemuck::pod_collect_to_vec(codes);
    }
    let mut words = vec![0; codes.len() / 8];
    for (codes, words) in codes.as_chunks().0.iter().zip(words.as_chunks_mut().0) {
        lanes::four_bits(codes, words);
    }
    words
}

/// Replaces the contents of `values` by those of whole groups of codes, each times its group's factor.
pub fn scaled(codes: &[i8], factors: &[f32], values: &mut Vec<f32>) {
    values.resize(codes.len(), 0.0);
    let groups = codes.as_chunks().0.iter().zip(factors);
    for ((codes, by), group) in groups.zip(values.as_chunks_mut().0) {
        lanes::scaled(codes, *by, group);
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What is packed again from its values keeps its codes.
    #[test]
    fn codes_come_back_from_their_values() {
        let values: Vec<f32> =
            (0..3 * GROUP).map(|i| ((i * i + 7) as f32 % 11.3 - 5.6) / 17.0).collect();
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
        let bytes = pack_codes(WeightFormat::Int8, &[[-1, 2, -128, 127]; 8].concat());
        assert_eq!(bytes, [0x7f80_02ff; 8]);
        let nibbles = pack_codes(WeightFormat::Int4, &[[-8, 7, 0, 1, -1, 2, 3, 4]; 4].concat());
        assert_eq!(nibbles, [0xcba7_98f0; 4]);
        for (format, code, held) in [
            (WeightFormat::Int4, 7, true),
            (WeightFormat::Int4, 8, false),
            (WeightFormat::Int8, 8, true),
            (WeightFormat::F16, 1, false),
        ] {
            assert_eq!(holds_codes(format, &[code; GROUP]), held, "{format:?} {code}");
        }
    }

    #[test]
    fn a_group_that_vanishes_is_zero() {
        let (words, scales) = pack(WeightFormat::Int4, &[1e-35; GROUP]);
        assert_eq!((words, scales), (vec![0x8888_8888; 4], vec![0.0]));
    }
}
