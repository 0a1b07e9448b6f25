//! The uniforms of the kernels, as their headers lay them out.

pub(super) use crate::plan::Step;

/// `13_sample.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
pub(super) struct Sampling {
    pub temperature: f32,
    pub top_p: f32,
    pub min_p: f32,
    pub repetition_penalty: f32,
    pub top_k: u32,
    pub seed: [u32; 2],
    pub turn0: u32,
}

/// `00_initialize.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
pub(super) struct Initialize {
    pub seed: [u32; 2],
    pub tag: u32,
    pub factor: f32,
}

/// The elements of `00_initialize.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
pub(super) struct Elements {
    pub first: u32,
    pub count: u32,
    pub index: u32,
    pub stream: u32,
}
