//! Attention over tensors of any strides: how their elements are stored, and where.

use super::operands::{AttentionOperands, attention_kernel};
use super::sums::delta_kernel;
use crate::caps::Capabilities;
use crate::error::Result;
use crate::format::Element;
use crate::kernels::compose::{Composer, Kernel, Spec, read, read_write, uniform};
use crate::kernels::shape::{AttentionPass, AttentionShape, DenseMask, Scores};

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

/// Heads of tensors, and their scores. Lengths and strides are run-time values, and what a query sees says the mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TensorAttention {
    pub shape: AttentionShape,
    pub scores: Scores,
    /// Rows of the longer side.
    pub tokens: usize,
}

/// A pass of attention over tensors of `batch` items. Bindings: those that `lib/attention/operands.wgsl` lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionTensors {
    pub of: TensorAttention,
    pub pass: AttentionPass,
    pub element: Element,
    pub dense: DenseMask,
    pub batch: usize,
}

impl Spec for AttentionTensors {
    fn name(&self) -> &'static str {
        self.pass.kernel_name()
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { of, pass, element, dense, batch } = *self;
        let operands = AttentionOperands::Tensors { of, element, dense, batch };
        attention_kernel(caps, *self, pass, operands, None)
    }
}

/// The row sums that both backward kernels need, and what they read of the logsumexp. Bindings: output, d_output, lse,
/// statistics, geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionDeltaTensors {
    pub shape: AttentionShape,
    pub element: Element,
    pub batch: usize,
}

impl Spec for AttentionDeltaTensors {
    fn name(&self) -> &'static str {
        "attention_delta_backward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { shape, element, batch } = *self;
        let place = |composer: Composer| {
            composer.when("TENSORS", true).when("F16", element == Element::F16)
        };
        let bindings = [
            read("output"),
            read("d_output"),
            read("lse"),
            read_write("statistics"),
            uniform("geometry"),
        ];
        delta_kernel(caps, *self, shape, shape.heads * batch, &bindings, place)
    }
}
