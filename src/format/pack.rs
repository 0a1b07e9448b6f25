//! Packing on the host, group by group: what `08_pack_weights.wgsl` does on a GPU. A division rounds the same
//! way on every processor, and need not on a GPU, so that a checkpoint packed here gives the same bytes
//! everywhere.

use super::{GROUP, WeightFormat};
use half::f16;

/// The largest magnitude that f16 holds.
const HALF_MOST: f32 = 65504.0;
/// Below this the reciprocal of a scale would overflow: such a group is zero.
const VANISHING: f32 = 1e-30;

/// The words of whole groups of finite numbers, and behind them, where the format has them, a scale for each
/// group.
pub(crate) fn pack(format: WeightFormat, values: &[f32]) -> (Vec<u32>, Vec<f32>) {
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

/// What f16 cannot hold is bounded to what it can.
fn halves(pair: [f32; 2]) -> u32 {
    let bits = |x: f32| u32::from(f16::from_f32(x.clamp(-HALF_MOST, HALF_MOST)).to_bits());
    bits(pair[0]) | bits(pair[1]) << 16
}

#[cfg(all(test, testing))]
mod tests {
    use super::*;
    use crate::kernels::weights::twin::pack_weights_forward;
    use crate::twins::check::noise;

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

    #[test]
    fn a_group_that_vanishes_is_zero() {
        let (words, scales) = pack(WeightFormat::Int4, &[1e-35; GROUP]);
        assert_eq!((words, scales), (vec![0x8888_8888; 4], vec![0.0]));
    }
}
