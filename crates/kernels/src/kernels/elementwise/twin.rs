//! Twins of family 00.

use super::{CHECKSUM_LANES, CaptureForward, Checksum, CopyRow, InitializeForward, Scale, Zero};
use crate::error::Result;
use crate::kernels::shape::Constant;
use crate::random::philox;
use crate::twins::{Operands, Real, Twin};

/// Sum i of words i, i + lanes, …, each mixed with its index.
pub fn checksum_forward(words: &[u32], lanes: usize) -> Vec<u32> {
    let mut sums = vec![0u32; lanes];
    for (i, &word) in words.iter().enumerate() {
        let mut x = word.wrapping_add((i as u32).wrapping_mul(0x9e37_79b9));
        x = (x ^ (x >> 16)).wrapping_mul(0x85eb_ca6b);
        x = (x ^ (x >> 13)).wrapping_mul(0xc2b2_ae35);
        let sum = &mut sums[i % lanes];
        *sum = sum.wrapping_add(x ^ (x >> 16));
    }
    sums
}

/// x times a factor, in place.
pub fn scale_forward<R: Real>(x: &mut [R], factor: R) {
    x.iter_mut().for_each(|x| *x *= factor);
}

impl Twin for Zero {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Self { count } = *self;
        if on.step()?.accumulate == 0 {
            on.write("data", 0, &vec![0.0; count])?;
        }
        Ok(())
    }
}

impl Twin for CopyRow {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Self { hidden } = *self;
        let tokens = on.tokens()?;
        let row = on.first("input", tokens * hidden)?[(tokens - 1) * hidden..].to_vec();
        on.write("output", 0, &row)
    }
}

impl Twin for Scale {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Self { columns, factor: Constant(factor) } = *self;
        let count = on.tokens()? * columns;
        let mut rows = on.first("rows", count)?.to_vec();
        scale_forward(&mut rows, factor as f32);
        on.write("rows", 0, &rows)
    }
}

impl Twin for CaptureForward {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Self { stride, first, columns, factor } = *self;
        let step = on.step()?;
        let rows = on.first("x", step.tokens as usize * stride)?.chunks_exact(stride);
        let factor = factor.0 as f32;
        let own = rows.flat_map(|row| row[first..][..columns].iter().map(|x| factor * x));
        let own: Vec<f32> = own.collect();
        on.write("y", step.position as usize * columns, &own)
    }
}

impl Twin for Checksum {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Self { count } = *self;
        let sums = checksum_forward(&on.u32("words")?[..count], CHECKSUM_LANES);
        on.u32_mut("sums")?[..CHECKSUM_LANES].copy_from_slice(&sums);
        Ok(())
    }
}

/// The options of `00_initialize.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
struct Options {
    seed: [u32; 2],
    tag: u32,
    factor: f32,
}

/// The elements of `00_initialize.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
struct Elements {
    first: u32,
    count: u32,
    index: u32,
    stream: u32,
}

impl Twin for InitializeForward {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Self { count } = *self;
        let options: Options = on.uniform("options")?;
        let elements: Elements = on.uniform("elements")?;
        let weight = |id: u32| {
            let counter = [elements.index + id, 0, elements.stream, options.tag];
            let words = philox(counter, options.seed);
            let sum: u32 = words.iter().map(|word| (word & 0xffff) + (word >> 16)).sum();
            (sum as i32 - 4 * 0xffff) as f32 * options.factor
        };
        let weights: Vec<f32> = (0..elements.count.min(count as u32)).map(weight).collect();
        on.write("weights", elements.first as usize, &weights)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_and_its_place_change_a_sum() {
        let words = [7, 7, 0, 3, 9];
        let sums = |words: &[u32]| checksum_forward(words, 2);
        assert_eq!(sums(&words), sums(&words));
        for changed in [[7, 7, 0, 3, 8], [7, 7, 9, 3, 0], [7, 3, 0, 7, 9], [0, 7, 7, 3, 9]] {
            assert_ne!(sums(&words), sums(&changed));
        }
    }
}
