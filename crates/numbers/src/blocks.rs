//! Blocks of ggml that have one factor each: their codes are what a model can hold as they are.

use crate::GROUP;
use crate::pack::lanes;
use half::f16;

/// A type of such blocks. A block has 32 codes, after its factor in f16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockType {
    /// Four bits each, less 8: the first 16 are the low ones of 16 bytes.
    Q4,
    /// The same less 16, with a fifth bit each in the word before.
    Q5,
    /// Signed bytes.
    Q8,
}

impl BlockType {
    /// By its number in ggml.
    pub const fn numbered(number: u32) -> Option<Self> {
        match number {
            2 => Some(Self::Q4),
            6 => Some(Self::Q5),
            8 => Some(Self::Q8),
            _ => None,
        }
    }

    /// Bytes of a block.
    pub const fn bytes(self) -> usize {
        2 + match self {
            Self::Q4 => GROUP / 2,
            Self::Q5 => 4 + GROUP / 2,
            Self::Q8 => GROUP,
        }
    }

    /// The codes of whole blocks, and a factor for each block.
    pub fn read(self, bytes: &[u8]) -> (Vec<i8>, Vec<f32>) {
        let count = bytes.len() / self.bytes();
        let (mut codes, mut factors) = (vec![0; count * GROUP], Vec::with_capacity(count));
        let blocks = bytes.chunks_exact(self.bytes());
        for (block, codes) in blocks.zip(codes.as_chunks_mut::<GROUP>().0) {
            let (factor, packed) = block.split_at(2);
            factors.push(f16::from_le_bytes([factor[0], factor[1]]).to_f32());
            match self {
                Self::Q8 => codes.copy_from_slice(bytemuck::cast_slice(packed)),
                Self::Q5 => *codes = fives(packed),
                Self::Q4 => {
                    if let Some(bytes) = packed.first_chunk() {
                        lanes::halves_of_bytes(bytes, codes);
                    }
                }
            }
        }
        (codes, factors)
    }
}

/// The codes of a block of Q5_0.
fn fives(packed: &[u8]) -> [i8; GROUP] {
    let (fifths, fours) = packed.split_at(4);
    core::array::from_fn(|i| {
        let four = fours[i % 16] >> (i / 16 * 4) & 15;
        let fifth = fifths[i / 8] >> (i % 8) & 1;
        (four | fifth << 4).cast_signed() - 16
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks whose factor is 1.5. Their codes are their places, or minus those.
    #[test]
    fn codes_come_in_their_order() {
        let factor = f16::from_f32(1.5).to_le_bytes();
        let block = |rest: &[u8]| [&factor[..], rest].concat();
        let low_and_high: Vec<u8> = (0..16).map(|i| i | (15 - i) << 4).collect();
        let expected: Vec<i8> = (-8..8).chain((-8..8).rev()).collect();
        assert_eq!(BlockType::Q4.read(&block(&low_and_high)), (expected, vec![1.5]));
        let fifths = [0xff, 0, 0xff, 0];
        let five = block(&[&fifths[..], &low_and_high].concat());
        let fifth = |i: i8| if i / 8 % 2 == 0 { 16 } else { 0 };
        let four = |i: i8| if i < 16 { i } else { 31 - i };
        let expected: Vec<i8> = (0..32).map(|i| four(i) + fifth(i) - 16).collect();
        assert_eq!(BlockType::Q5.read(&five), (expected, vec![1.5]));
        let signed: Vec<u8> = (0..32).map(|i: u8| i.wrapping_mul(200)).collect();
        let expected = signed.iter().map(|&code| code.cast_signed()).collect();
        assert_eq!(BlockType::Q8.read(&block(&signed)), (expected, vec![1.5]));
        let two = [block(&signed), block(&signed)].concat();
        assert_eq!(BlockType::Q8.read(&two).1, [1.5, 1.5]);
    }
}
