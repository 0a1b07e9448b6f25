//! The uniforms of the kernels, as `shaders/lib/step.wgsl` and the kernels' headers lay them out.

/// `lib/step.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub(super) struct Step {
    pub tokens: u32,
    pub position: u32,
    pub accumulate: u32,
    pub draws: u32,
    pub learning_rate: f32,
    pub loss_scale: f32,
    pub gradient_scale: f32,
    pub max_grad_norm: f32,
    pub beta1: f32,
    pub beta2: f32,
    pub epsilon: f32,
    pub weight_decay: f32,
    pub one_minus_beta1: f32,
    pub one_minus_beta2: f32,
    pub reserved: [u32; 2],
}

const _: () = assert!(size_of::<Step>() as u64 == crate::plan::STEP_BYTES);

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
