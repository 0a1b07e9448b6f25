//! Packing on the host, group by group: what `08_pack_weights.wgsl` does on a GPU. A division rounds the same
//! way on every processor, and need not on a GPU, so that a checkpoint packed here gives the same bytes
//! everywhere.

use super::{GROUP, WeightFormat};
use half::f16;

/// The largest magnitude that f16 holds.
const HALF_MOST: f32 = 65504.0;
/// Below this the reciprocal of a scale would overflow: such a group is zero.
const VANISHING: f32 = 1e-30;

/// Whole groups of finite numbers: the words of each of [`WeightFormat::parts`].
pub fn pack(format: WeightFormat, values: &[f32]) -> Vec<Vec<u32>> {
    let mut parts: Vec<Vec<u32>> = vec![vec![]; format.parts().len()];
    for (part, words) in parts.iter_mut().zip(format.parts()) {
        part.reserve(values.len() / format.group() * words);
    }
    let groups = values.as_chunks::<GROUP>().0;
    match format {
        WeightFormat::F32 | WeightFormat::F16 => {
            parts[0].extend(groups.as_flattened().as_chunks().0.iter().map(|&pair| halves(pair)));
        }
        WeightFormat::Int8 => groups.iter().for_each(|group| {
            let (scale, inverse) = scale_of(group, |extreme| extreme.abs() / 127.0);
            let code = |x: f32| (x * inverse).round_ties_even().clamp(-127.0, 127.0) as i8;
            parts[0].extend(bytes(&group.map(code)));
            parts[1].push(scale.to_bits());
        }),
        WeightFormat::Int4 => groups.iter().for_each(|group| {
            let (scale, inverse) = scale_of(group, |extreme| extreme / -8.0);
            let code = |x: f32| ((x * inverse).round_ties_even() + 8.0).clamp(0.0, 15.0) as u8;
            parts[0].extend(nibbles(&group.map(code)));
            parts[1].push(scale.to_bits());
        }),
        WeightFormat::Int5 => groups.as_chunks().0.iter().for_each(|pair: &[_; 2]| {
            let [(first, low), (second, high)] = pair.each_ref().map(Grid::around);
            for codes in [low, high] {
                parts[0].extend(by_fours::<8>(&codes, 4));
                parts[1].extend(by_fours::<32>(&codes.map(|code| code >> 4), 1));
            }
            parts[2].push(u32::from(first.0) | u32::from(second.0) << 16);
        }),
    }
    parts
}

/// The scale that the number of the largest magnitude asks for, and its reciprocal; both 0 of a group that vanishes.
fn scale_of(group: &[f32], of: impl Fn(f32) -> f32) -> (f32, f32) {
    let larger = |a: f32, &b: &f32| if b.abs() > a.abs() { b } else { a };
    let extreme = group.iter().fold(0.0, larger);
    if extreme.abs() < VANISHING {
        return (0.0, 0.0);
    }
    let scale = of(extreme);
    (scale, 1.0 / scale)
}

/// Where the 32 codes of five bits lie, in 16 bits: code n is `width · (n / 32 − zero / 64)`. The upper ten bits are those of
/// the width, of 32 steps, in f16 without its sign and its last five; the lower six are zero's place.
#[derive(Clone, Copy)]
struct Grid(u16);

impl Grid {
    /// From the least to the largest of some numbers, zero among them, and their codes.
    fn around(group: &[f32; GROUP]) -> (Self, [u8; GROUP]) {
        let least = group.iter().fold(0.0, |a: f32, &b| a.min(b));
        let most = group.iter().fold(0.0, |a: f32, &b| a.max(b));
        let bits = ((most - least) / 31.0 * 32.0).to_bits();
        // Rounded to five bits of a mantissa, the exponent as f16 counts it: from 1 to 30.
        let upper = (bits + 0x1_ffff + (bits >> 18 & 1)) >> 18;
        if upper < 113 << 5 {
            return (Self(0), [0; GROUP]);
        }
        let width = (upper - (112 << 5)).min((31 << 5) - 1) as u16;
        let grid = Self(width << 6);
        let steps = 32.0 / grid.width();
        let zero = (-least * steps * 2.0).round_ties_even().clamp(0.0, 63.0);
        let code = |x: f32| (x * steps + zero / 2.0).round_ties_even().clamp(0.0, 31.0) as u8;
        (Self(width << 6 | zero as u16), group.map(code))
    }

    fn width(self) -> f32 {
        f16::from_bits(self.0 >> 1 & 0x7fe0).to_f32()
    }

    fn value(self, code: u32) -> f32 {
        self.width() * ((2.0 * code as f32 - f32::from(self.0 & 63)) / 64.0)
    }
}

/// Words of eight codes of four bits each, the first ones lowest.
fn nibbles(codes: &[u8]) -> impl Iterator<Item = u32> {
    let word = |eight: &[u8; 8]| eight.iter().rev().fold(0, |word, &x| word << 4 | u32::from(x));
    codes.as_chunks().0.iter().map(word)
}

/// Words of so many codes of `bits` bits each, by fours: byte j has code j of each four, those of the first one lowest. So
/// four neighbours are unpacked together.
fn by_fours<const CODES: usize>(codes: &[u8], bits: u32) -> impl Iterator<Item = u32> {
    let most = 0x0101_0101 * ((1 << bits) - 1);
    let word = move |some: &[u8; CODES]| {
        let fours = some.as_chunks().0.iter().rev();
        fours.fold(0, |word, &four| word << bits | u32::from_le_bytes(four) & most)
    };
    codes.as_chunks().0.iter().map(word)
}

fn bytes(codes: &[i8]) -> impl Iterator<Item = u32> {
    codes.as_chunks().0.iter().map(|four| u32::from_le_bytes(four.map(i8::cast_unsigned)))
}

/// Whether a format holds codes as they are. Each group of codes has a factor of its own.
pub fn holds_codes(format: WeightFormat, codes: &[i8]) -> bool {
    match format {
        WeightFormat::F32 | WeightFormat::F16 | WeightFormat::Int5 => false,
        WeightFormat::Int8 => true,
        WeightFormat::Int4 => codes.iter().all(|code| (-8..8).contains(code)),
    }
}

/// The words of codes that the format holds, and of their factors.
pub fn pack_codes(format: WeightFormat, codes: &[i8], scales: &[f32]) -> Vec<Vec<u32>> {
    let words = if format == WeightFormat::Int8 {
        bytes(codes).collect()
    } else {
        let above: Vec<u8> = codes.iter().map(|code| (code + 8).cast_unsigned()).collect();
        nibbles(&above).collect()
    };
    vec![words, scales.iter().map(|scale| scale.to_bits()).collect()]
}

/// The values of whole groups that are packed: the words of each part.
pub fn unpack(format: WeightFormat, parts: &[Vec<u32>]) -> Vec<f32> {
    let codes = &parts[0];
    let each = format.group() / format.parts()[0];
    let scale = |i: usize| f32::from_bits(parts[1][i / GROUP]);
    let value = |i: usize| {
        let code = codes[i / each] >> (i % each * (32 / each));
        match format {
            WeightFormat::F32 => f32::from_bits(code),
            WeightFormat::F16 => f16::from_bits(code as u16).to_f32(),
            WeightFormat::Int8 => f32::from(code as i8) * scale(i),
            WeightFormat::Int4 => ((code & 15) as f32 - 8.0) * scale(i),
            WeightFormat::Int5 => {
                let (byte, four) = (i % 4 * 8, i / 4);
                let low = codes[i / 8] >> (byte + four % 2 * 4) & 15;
                let fifth = parts[1][i / 32] >> (byte + four % 8) & 1;
                let grid = parts[2][i / 64] >> (i / 32 % 2 * 16);
                Grid(grid as u16).value(low | fifth << 4)
            }
        }
    };
    (0..codes.len() * each).map(value).collect()
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
        let values: Vec<f32> = (0..4 * GROUP).map(|i| libm::sinf(i as f32) / 3.0).collect();
        // Of four bits the far end of the other sign is a step away: 1/3 over 8.
        for (format, apart) in
            [(WeightFormat::F16, 2e-4), (WeightFormat::Int8, 2e-3), (WeightFormat::Int4, 0.042)]
        {
            let packed = pack(format, &values);
            let unpacked = unpack(format, &packed);
            assert!(
                unpacked.iter().zip(&values).all(|(a, b)| (a - b).abs() <= apart),
                "{format:?}"
            );
            assert_eq!(pack(format, &unpacked)[0], packed[0], "{format:?}");
        }
    }

    /// Numbers of a grid that has both its ends come back as they were, and others by half of its step: at an end by more,
    /// since the width is rounded.
    #[test]
    fn five_bits_have_a_grid_for_32() {
        let grids = [(0.75f32, 19), (40.0, 0)].map(|(width, zero)| {
            let grid = Grid((f16::from_f32(width).to_bits() >> 5) << 6 | zero);
            assert_eq!(grid.width(), width);
            grid
        });
        let values: Vec<f32> = (0..64).map(|i| grids[i / 32].value(i as u32 * 7 % 32)).collect();
        let packed = pack(WeightFormat::Int5, &values);
        assert_eq!(unpack(WeightFormat::Int5, &packed), values);
        assert_eq!(packed.iter().map(Vec::len).collect::<Vec<_>>(), WeightFormat::Int5.parts());
        for by in [1e-3, 0.3, 7e3] {
            let values: Vec<f32> = (0..64).map(|i| by * (libm::sinf(i as f32) + 0.3)).collect();
            let packed = pack(WeightFormat::Int5, &values);
            for (group, kept) in
                values.chunks(32).zip(unpack(WeightFormat::Int5, &packed).chunks(32))
            {
                let [least, most] =
                    [f32::min, f32::max].map(|of| group.iter().copied().fold(0.0, of));
                let step = (most - least) / 31.0;
                let inner = |x: f32| x > least + step && x < most - step;
                for (&x, y) in group.iter().zip(kept) {
                    let allowed = if inner(x) { 0.51 } else { 0.76 } * step;
                    assert!((x - y).abs() <= allowed, "{x} as {y}, a step being {step}");
                }
            }
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
        let found = pack(WeightFormat::Int4, &values);
        assert_eq!(pack_codes(WeightFormat::Int4, &codes, &scales), found);
        let byte = pack_codes(WeightFormat::Int8, &[-1, 2, -128, 127], &[]);
        assert_eq!(byte[0], [0x7f80_02ff]);
        let nibbles = pack_codes(WeightFormat::Int4, &[-8, 7, 0, 1, -1, 2, 3, 4], &[]);
        assert_eq!(nibbles[0], [0xcba7_98f0]);
        for (format, code, held) in [
            (WeightFormat::Int4, 7, true),
            (WeightFormat::Int4, 8, false),
            (WeightFormat::Int8, 8, true),
            (WeightFormat::Int5, 0, false),
            (WeightFormat::F16, 1, false),
        ] {
            assert_eq!(holds_codes(format, &[0, code]), held, "{format:?} {code}");
        }
    }

    #[test]
    fn a_group_that_vanishes_is_zero() {
        let packed = pack(WeightFormat::Int4, &[1e-35; GROUP]);
        assert_eq!(packed, [vec![0x8888_8888; 4], vec![0]]);
        let packed = pack(WeightFormat::Int5, &[1e-35; 2 * GROUP]);
        assert_eq!(packed, [vec![0; 8], vec![0; 2], vec![0]]);
    }

    /// A group of one number has zero as its other end.
    #[test]
    fn a_group_of_one_number_keeps_it() {
        for x in [0.37f32, -2.0] {
            let kept = unpack(WeightFormat::Int5, &pack(WeightFormat::Int5, &[x; 2 * GROUP]));
            assert!(kept.iter().all(|y| (x - y).abs() < 0.02 * x.abs()), "{x}: {}", kept[0]);
        }
    }

    /// What f16 cannot hold of a width is bounded to what it can.
    #[test]
    fn a_width_is_bounded() {
        let kept = unpack(WeightFormat::Int5, &pack(WeightFormat::Int5, &[1e6; 2 * GROUP]));
        assert_eq!(kept[0], 64512.0 / 32.0 * 31.0);
    }
}
