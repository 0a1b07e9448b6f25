//! Attention over tensors of any strides: how their elements are stored, and where they lie.

use super::attention::{AttentionShape, Operands, attention_kernel, delta_kernel};
use super::attention_tile::AttentionPass;
use super::compose::{Composer, Kernel, read, read_write, shader, uniform};
use super::spec::KernelSpec;
use crate::caps::Capabilities;
use crate::error::Result;
use serde::{Deserialize, Serialize};

/// How the elements of a tensor are stored. Sums and softmax statistics are f32 either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Element {
    #[default]
    F32,
    /// Two elements per word; needs no feature.
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

/// The part of a mask that is given for each query and key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DenseMask {
    /// Intervals of keys say all.
    #[default]
    None,
    /// A bit for each key: set, the query sees it.
    Bits,
    /// An f32 for each key, added to the score.
    Additive,
}

impl DenseMask {
    pub(super) fn module(self, composer: Composer) -> Composer {
        composer.module(match self {
            Self::None => shader!("lib/attention_dense_none"),
            Self::Bits => shader!("lib/attention_dense_bits"),
            Self::Additive => shader!("lib/attention_dense_additive"),
        })
    }
}

/// A pass of attention over tensors of `batch` items. Bindings: those that
/// `lib/attention_forward_tensors.wgsl` and `lib/attention_backward_tensors*.wgsl` list. Lengths and
/// strides are run-time values; of `shape`, `window` plays no part (the mask's intervals hold it) and
/// `tokens` are the rows of the longer side.
///
/// # Errors
/// `limit-exceeded` when no tile or too few storage buffers fit.
pub fn attention_tensors(
    caps: &Capabilities,
    shape: AttentionShape,
    pass: AttentionPass,
    element: Element,
    dense: DenseMask,
    batch: usize,
) -> Result<Kernel> {
    attention_kernel(caps, shape, pass, Operands::Tensors { element, dense, batch }, None)
}

/// `attention_delta_backward` over tensors. Bindings: output, d_output, lse, statistics, geometry.
///
/// # Errors
/// `limit-exceeded` when not even one invocation fits.
pub fn attention_delta_tensors(
    caps: &Capabilities,
    shape: AttentionShape,
    element: Element,
    batch: usize,
) -> Result<Kernel> {
    let place = |composer: Composer| {
        element
            .module(composer.module(shader!("lib/attention_geometry")))
            .module(shader!("lib/attention_delta_tensors"))
    };
    let bindings = [
        read("output"),
        read("d_output"),
        read("lse"),
        read_write("statistics"),
        uniform("geometry"),
    ];
    let spec = KernelSpec::AttentionDeltaTensors { shape, element, batch };
    delta_kernel(caps, spec, shape, shape.heads * batch, &bindings, place)
}
