//! Packing of one group, a number at a time: what `vectors.rs` does in wasm, to the bit.

use super::Group;
use crate::GROUP;
use half::f16;

/// The largest magnitude that f16 holds.
const MOST: f32 = 65504.0;

/// Two to a word, rounded to the nearest even. What f16 cannot hold is bounded to what it can.
pub fn halves(group: &Group, words: &mut [u32; 16]) {
    let bits = |x: f32| u32::from(f16::from_f32(x.clamp(-MOST, MOST)).to_bits());
    for (word, [low, high]) in words.iter_mut().zip(group.as_chunks().0) {
        *word = bits(*low) | bits(*high) << 16;
    }
}

/// The first one of the largest magnitude.
pub fn extreme(group: &Group) -> f32 {
    group.iter().fold(0.0, |a: f32, &b| if b.abs() > a.abs() { b } else { a })
}

/// Signed bytes from -127 to 127, four to a word.
pub fn bytes(group: &Group, inverse: f32, words: &mut [u32; 8]) {
    let byte = |x: f32| (steps(x, inverse).clamp(-127.0, 127.0) as i8).cast_unsigned();
    for (word, four) in words.iter_mut().zip(group.as_chunks::<4>().0) {
        *word = u32::from_le_bytes(four.map(byte));
    }
}

/// Four bits, eight to a word: 8 more than the number of steps, from 0 to 15.
pub fn nibbles(group: &Group, inverse: f32, words: &mut [u32; 4]) {
    let nibble = |x: f32| (steps(x, inverse) + 8.0).clamp(0.0, 15.0) as u32;
    for (word, eight) in words.iter_mut().zip(group.as_chunks::<8>().0) {
        *word = eight.iter().rev().fold(0, |word, &x| word << 4 | nibble(x));
    }
}

fn steps(x: f32, inverse: f32) -> f32 {
    (x * inverse).round_ties_even()
}

/// Whether codes are from -8 to 7.
pub fn in_four_bits(codes: &[i8; GROUP]) -> bool {
    codes.iter().all(|code| (-8..8).contains(code))
}

/// Codes from -8 to 7 in four bits, eight to a word, as `nibbles` has them.
pub fn four_bits(codes: &[i8; GROUP], words: &mut [u32; 4]) {
    let nibble = |code: i8| u32::from((code + 8).cast_unsigned());
    for (word, eight) in words.iter_mut().zip(codes.as_chunks::<8>().0) {
        *word = eight.iter().rev().fold(0, |word, &code| word << 4 | nibble(code));
    }
}

/// The codes of ggml's Q4_0: low halves of the bytes, then high ones, less 8.
pub fn halves_of_bytes(bytes: &[u8; 16], codes: &mut [i8; GROUP]) {
    for (i, code) in codes.iter_mut().enumerate() {
        *code = (bytes[i % 16] >> (i / 16 * 4) & 15).cast_signed() - 8;
    }
}

/// Codes times a factor.
pub fn scaled(codes: &[i8; GROUP], by: f32, group: &mut Group) {
    for (number, &code) in group.iter_mut().zip(codes) {
        *number = f32::from(code) * by;
    }
}
