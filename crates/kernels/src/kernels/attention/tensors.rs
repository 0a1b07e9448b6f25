//! Attention over tensors of any strides: how their elements are stored, and where they lie.

use super::batch::{attention_kernel, delta_kernel};
use super::operands::Operands;
use super::specs::AttentionDeltaTensors;
use crate::caps::Capabilities;
use crate::error::Result;
use crate::format::Element;
use crate::kernels::compose::{Composer, Kernel, read, read_write, uniform};
use crate::kernels::shape::{AttentionPass, AttentionShape, DenseMask};
use crate::kernels::spec::KernelSpec;

/// Strides from one batch item, head and row to the next, and where the first begins; in vectors of
/// four elements, or of a mask in words.
pub type Strides = [u32; 4];

/// The uniform of `lib/attention/geometry.wgsl`.
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

/// A pass of attention over tensors of `batch` items. Bindings: those that
/// `lib/attention/operands.wgsl` lists. Lengths and
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
    let place =
        |composer: Composer| composer.when("TENSORS", true).when("F16", element == Element::F16);
    let bindings = [
        read("output"),
        read("d_output"),
        read("lse"),
        read_write("statistics"),
        uniform("geometry"),
    ];
    let spec = KernelSpec::from(AttentionDeltaTensors { shape, element, batch });
    delta_kernel(caps, spec, shape, shape.heads * batch, &bindings, place)
}
