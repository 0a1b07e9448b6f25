//! What changes from one replay of a plan to the next.

use crate::random::{WEIGHTS, split, weight_factor};

/// Most numbers of an optimizer.
pub const MOST_NUMBERS: usize = 6;

/// The `Step` uniform of `lib/step.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Step {
    pub tokens: u32,
    pub position: u32,
    pub accumulate: u32,
    pub draws: u32,
    pub learning_rate: f32,
    pub loss_scale: f32,
    pub gradient_scale: f32,
    pub max_grad_norm: f32,
    pub weight_decay: f32,
    /// 1: a profile's step, which leaves weights and state as they are.
    pub still: u32,
    pub reserved: [u32; 2],
    /// Factors of the two numbers that a step's decision carries, and what is added to each.
    pub carried: [f32; 4],
    /// The optimizer's, in its own order: each, 1 less it, and nothing.
    pub numbers: [[f32; 4]; MOST_NUMBERS],
}

impl Step {
    /// The step of a batch of `tokens` rows, all else zero.
    pub fn of(tokens: usize) -> Self {
        Self { tokens: tokens as u32, ..Self::default() }
    }
}

/// Bytes of the uniform.
pub const STEP_BYTES: u64 = size_of::<Step>() as u64;

/// The `Sampling` of `lib/sample.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Sampling {
    pub temperature: f32,
    pub top_p: f32,
    pub min_p: f32,
    pub repetition_penalty: f32,
    pub top_k: u32,
    pub seed: [u32; 2],
    pub first_draw: u32,
}

/// How one of several rows draws: the `Choice` of `lib/sample.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct RowChoice {
    pub sampling: Sampling,
    /// Draws made less position, which wraps.
    pub offset: u32,
    /// The last position to which the row advances.
    pub last: u32,
    pub reserved: [u32; 2],
}

/// The options of `00_initialize.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Initialize {
    pub seed: [u32; 2],
    pub tag: u32,
    pub factor: f32,
}

impl Initialize {
    pub fn new(seed: u64, std: f64) -> Self {
        Self { seed: split(seed), tag: WEIGHTS, factor: weight_factor(std) }
    }
}
