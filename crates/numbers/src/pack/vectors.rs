//! Packing of one group with the 128-bit vectors of wasm. Loops and places to write to, instead of closures and arrays that
//! are returned: at this `opt-level` those are calls and copies of memory, which take most of the time.

use super::Group;
use crate::GROUP;
use core::arch::wasm32::*;

/// Bits of the largest f32 that f16 holds, and of the least that is a normal f16.
const MOST: u32 = 65504f32.to_bits();
const NORMAL: u32 = (127 - 14) << 23;
/// What the exponent of f32 is more than that of f16, at its place.
const BIAS: u32 = (127 - 15) << 23;
/// Half of the numbers from 2^23 to 2^24, whose step is one.
const LARGE: f32 = 12_582_912.0;

/// Two to a word, rounded to the nearest even. What f16 cannot hold is bounded to what it can.
#[target_feature(enable = "simd128")]
pub fn halves(group: &Group, words: &mut [u32; 16]) {
    for (eight, words) in group.as_chunks().0.iter().zip(words.as_chunks_mut::<4>().0) {
        let [low, high] = two(eight);
        *words = bytemuck::cast(u16x8_narrow_i32x4(half_bits(low), half_bits(high)));
    }
}

/// The f16 of each number, as a word.
#[target_feature(enable = "simd128")]
fn half_bits(bits: v128) -> v128 {
    let sign = v128_and(u32x4_shr(bits, 16), u32x4_splat(0x8000));
    let magnitude = u32x4_min(v128_and(bits, u32x4_splat(0x7fff_ffff)), u32x4_splat(MOST));
    // Halves below the normal ones are multiples of 2^-24, and so are the f32 from 0.5 on: the addition rounds.
    let small = u32x4_sub(f32x4_add(magnitude, f32x4_splat(0.5)), u32x4_splat(0.5f32.to_bits()));
    // 13 bits go: half of what they count is added, one less where the bit above them is even.
    let odd = v128_and(u32x4_shr(magnitude, 13), u32x4_splat(1));
    let rounded = u32x4_add(u32x4_add(magnitude, u32x4_splat(0xfff)), odd);
    let normal = u32x4_shr(u32x4_sub(rounded, u32x4_splat(BIAS)), 13);
    let half = v128_bitselect(small, normal, u32x4_lt(magnitude, u32x4_splat(NORMAL)));
    v128_or(sign, half)
}

/// The first one of the largest magnitude.
#[target_feature(enable = "simd128")]
pub fn extreme(group: &Group) -> f32 {
    let mut most = f32x4_splat(0.0);
    for eight in group.as_chunks().0 {
        let [low, high] = two(eight);
        most = f32x4_pmax(most, f32x4_pmax(f32x4_abs(low), f32x4_abs(high)));
    }
    most = f32x4_pmax(most, u32x4_shuffle::<2, 3, 0, 1>(most, most));
    most = f32x4_pmax(most, u32x4_shuffle::<1, 0, 3, 2>(most, most));
    for four in group.as_chunks::<4>().0 {
        let found = i32x4_bitmask(f32x4_eq(f32x4_abs(bytemuck::cast(*four)), most));
        if found != 0 {
            return four[found.trailing_zeros() as usize & 3];
        }
    }
    0.0
}

/// Signed bytes from -127 to 127, four to a word.
#[target_feature(enable = "simd128")]
pub fn bytes(group: &Group, inverse: f32, words: &mut [u32; 8]) {
    for (sixteen, words) in group.as_chunks().0.iter().zip(words.as_chunks_mut::<4>().0) {
        *words = bytemuck::cast(i8x16_max(steps(sixteen, inverse), i8x16_splat(-127)));
    }
}

/// Four bits, eight to a word: 8 more than the number of steps, from 0 to 15.
#[target_feature(enable = "simd128")]
pub fn nibbles(group: &Group, inverse: f32, words: &mut [u32; 4]) {
    let [low, high] = bytemuck::cast_ref::<Group, [[f32; 16]; 2]>(group);
    let most = i8x16_splat(7);
    let [low, high] = [i8x16_min(steps(low, inverse), most), i8x16_min(steps(high, inverse), most)];
    *words = fours(low, high);
}

/// The nearest multiples of the scale, ties to even. They are small: beside a number whose step is one the addition rounds.
#[target_feature(enable = "simd128")]
fn steps(numbers: &[f32; 16], inverse: f32) -> v128 {
    let [low, high] = bytemuck::cast_ref::<[f32; 16], [[f32; 8]; 2]>(numbers);
    i8x16_narrow_i16x8(eight_steps(low, inverse), eight_steps(high, inverse))
}

#[target_feature(enable = "simd128")]
fn eight_steps(numbers: &[f32; 8], inverse: f32) -> v128 {
    let [low, high] = two(numbers);
    let (inverse, large) = (f32x4_splat(inverse), f32x4_splat(LARGE));
    let low = f32x4_add(f32x4_mul(low, inverse), large);
    let high = f32x4_add(f32x4_mul(high, inverse), large);
    i16x8_narrow_i32x4(i32x4_sub(low, large), i32x4_sub(high, large))
}

/// Whether codes are from -8 to 7.
#[target_feature(enable = "simd128")]
pub fn in_four_bits(codes: &[i8; GROUP]) -> bool {
    let [low, high]: [v128; 2] = bytemuck::cast(*codes);
    let above = i8x16_gt(i8x16_max(low, high), i8x16_splat(7));
    let below = i8x16_lt(i8x16_min(low, high), i8x16_splat(-8));
    !v128_any_true(v128_or(above, below))
}

/// Codes from -8 to 7 in four bits, eight to a word, as `nibbles` has them.
#[target_feature(enable = "simd128")]
pub fn four_bits(codes: &[i8; GROUP], words: &mut [u32; 4]) {
    let [low, high] = bytemuck::cast(*codes);
    *words = fours(low, high);
}

/// The codes of ggml's Q4_0: low halves of the bytes, then high ones, less 8.
#[target_feature(enable = "simd128")]
pub fn halves_of_bytes(bytes: &[u8; 16], codes: &mut [i8; GROUP]) {
    let (bytes, eight): (v128, _) = (bytemuck::cast(*bytes), i8x16_splat(8));
    let low = v128_and(bytes, u8x16_splat(15));
    *codes = bytemuck::cast([i8x16_sub(low, eight), i8x16_sub(u8x16_shr(bytes, 4), eight)]);
}

/// Codes times a factor.
#[target_feature(enable = "simd128")]
pub fn scaled(codes: &[i8; GROUP], by: f32, group: &mut Group) {
    let by = f32x4_splat(by);
    for (codes, numbers) in codes.as_chunks().0.iter().zip(group.as_chunks_mut::<8>().0) {
        let eight =
            i16x8_extend_low_i8x16(i64x2_splat(i64::from_le_bytes(codes.map(i8::cast_unsigned))));
        let low = f32x4_mul(f32x4_convert_i32x4(i32x4_extend_low_i16x8(eight)), by);
        let high = f32x4_mul(f32x4_convert_i32x4(i32x4_extend_high_i16x8(eight)), by);
        *numbers = bytemuck::cast([low, high]);
    }
}

/// Codes from -8 to 7 as they are packed: 8 is added.
#[target_feature(enable = "simd128")]
fn fours(low: v128, high: v128) -> [u32; 4] {
    let eight = i8x16_splat(8);
    let [low, high] = [pairs(i8x16_add(low, eight)), pairs(i8x16_add(high, eight))];
    bytemuck::cast(u8x16_narrow_i16x8(low, high))
}

/// Two neighbours of four bits to a byte, in words of 16 bits.
#[target_feature(enable = "simd128")]
fn pairs(codes: v128) -> v128 {
    v128_and(v128_or(codes, u16x8_shr(codes, 4)), u16x8_splat(0xff))
}

#[target_feature(enable = "simd128")]
fn two(eight: &[f32; 8]) -> [v128; 2] {
    bytemuck::cast(*eight)
}
