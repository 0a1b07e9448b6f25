//! Attention over tensors of any strides: how their elements are stored, and where they lie.

use super::compose::{Composer, shader};
use serde::{Deserialize, Serialize};

/// How the elements of a tensor are stored. Sums and softmax statistics are f32 either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Element {
    #[default]
    F32,
    /// Two elements a word; needs no feature.
    F16,
}

impl Element {
    /// Bytes of one element.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
        }
    }

    /// The module that defines `Quad`, `pack_quad` and `unpack_quad`.
    pub(super) fn module(self, composer: Composer) -> Composer {
        match self {
            Self::F32 => composer.module(shader!("lib/quad_f32")),
            Self::F16 => composer.module(shader!("lib/finite")).module(shader!("lib/quad_f16")),
        }
    }
}

/// Strides from one batch item, head and row to the next, and where the first begins; in vectors of
/// four elements, or of a mask in words.
pub type Strides = [u32; 4];

/// The uniform of `lib/attention_geometry.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Geometry {
    pub query: Strides,
    pub key: Strides,
    pub value: Strides,
    pub output: Strides,
    pub d_output: Strides,
    pub d_query: Strides,
    pub d_key: Strides,
    pub d_value: Strides,
    /// Words from one batch item's query intervals to the next's, the same of key intervals, unused,
    /// and the word where key intervals begin.
    pub intervals: Strides,
    pub dense: Strides,
    pub batch: u32,
    pub query_rows: u32,
    pub key_rows: u32,
    pub dense_keys_from: u32,
}
