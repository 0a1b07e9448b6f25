//! The kernels' shapes, of what a model has: both the pass over layouts and lowering ask kernels by these.

use crate::arch::{Architecture, Attention, WeightId};
use crate::kernels::{AttentionShape, RopeShape, WeightFormat};
use crate::params::Params;

/// The shape for batches of up to `tokens` rows.
pub fn attention_shape(attention: Attention, tokens: usize, ring: Option<usize>) -> AttentionShape {
    AttentionShape {
        heads: attention.heads,
        kv_heads: attention.kv_heads,
        head_dim: attention.head_dim,
        window: attention.window,
        soft_cap: attention.soft_cap.map(|cap| cap as f32),
        scale: attention.scale.map(|scale| scale as f32),
        tokens,
        ring,
        ..AttentionShape::default()
    }
}

pub fn rope_shape(architecture: &Architecture, attention: Attention) -> RopeShape {
    RopeShape {
        heads: attention.heads + attention.kv_heads,
        head_dim: attention.head_dim,
        dims: attention.rope.map_or(0, |rope| architecture.ropes[rope].head_dim),
        stride: attention.stride(),
    }
}

/// How a plan reads matrices.
#[derive(Clone, Copy, Debug)]
pub struct Matrices<'a> {
    pub params: &'a Params,
    /// How those are read that are held in f32.
    pub weights: WeightFormat,
}

impl Matrices<'_> {
    /// How a matrix is read: as it is held, and an adapter's stays as it is.
    pub fn format(&self, weight: WeightId) -> WeightFormat {
        let as_held = self.params.weights != WeightFormat::F32;
        if as_held || self.params.architecture.is_low_rank(weight) {
            return self.params.matrices[weight].format;
        }
        self.weights
    }
}
