//! Kernels in which each output element has one invocation: embedding, RoPE, gated
//! activations, and two small helpers.

use super::compose::{Binding, Binding::*, Composer, Grid, Kernel, shader};
use super::workgroup_size;
use crate::caps::Capabilities;
use crate::config::Activation;
use crate::error::Result;

/// Width of the feed-forward block's hidden layer, and its activation.
#[derive(Clone, Copy, Debug)]
pub struct ActivationWidth {
    pub width: usize,
    pub activation: Activation,
}

pub(super) fn composer(caps: &Capabilities, name: &'static str) -> Result<Composer> {
    let size = workgroup_size(caps, 256, 1, name)?;
    Ok(Composer::new(name, size).module(shader!("lib/step")).module(shader!("lib/flat")))
}

/// One invocation for each of `width` elements of a row.
pub(super) fn finish(
    composer: Composer,
    caps: &Capabilities,
    bindings: &[Binding],
    width: usize,
) -> Result<Kernel> {
    let reason = "one invocation an element, workgroup as large as the device allows up to 256";
    let grid = Grid::Flat { rows: 1, per_block: width, per_group: composer.workgroup_size() };
    composer.finish(caps, bindings, grid, "flat", reason)
}

/// One invocation for each of `count` elements, however many rows the batch has.
fn fixed(
    composer: Composer,
    caps: &Capabilities,
    bindings: &[Binding],
    count: usize,
) -> Result<Kernel> {
    let flat = Grid::Flat { rows: 1, per_block: count, per_group: composer.workgroup_size() };
    let reason = "one invocation an element, workgroup as large as the device allows up to 256";
    composer.finish(caps, bindings, flat.fixed(caps, 1)?, "flat", reason)
}

/// `embedding_forward` for vectors of `hidden` elements. Grid: `tokens · hidden` invocations.
pub fn embedding_forward(caps: &Capabilities, hidden: usize) -> Result<Kernel> {
    let composer = composer(caps, "embedding_forward")?
        .size("HIDDEN", hidden)
        .module(shader!("lib/range"))
        .module(shader!("01_embedding_forward"));
    finish(composer, caps, &[Read, Read, ReadWrite, Uniform, Uniform], hidden)
}

/// `embedding_backward` for vectors of `hidden` elements. Grid: `tokens · hidden` invocations.
pub fn embedding_backward(caps: &Capabilities, hidden: usize) -> Result<Kernel> {
    let composer = composer(caps, "embedding_backward")?
        .size("HIDDEN", hidden)
        .module(shader!("lib/range"))
        .module(shader!("01_embedding_backward"));
    finish(composer, caps, &[Read, Read, Read, ReadWrite, Uniform, Uniform], hidden)
}

/// `initialize_forward`: `count` initial weights. Bindings: weights, options, run.
pub fn initialize(caps: &Capabilities, count: usize) -> Result<Kernel> {
    let name = "initialize_forward";
    let composer = Composer::new(name, workgroup_size(caps, 256, 1, name)?)
        .module(shader!("lib/flat"))
        .module(shader!("lib/philox"))
        .module(shader!("00_initialize"));
    fixed(composer, caps, &[ReadWrite, Uniform, Uniform], count)
}

/// `zero_forward`: clears `count` elements on the first micro-step.
pub fn zero(caps: &Capabilities, count: usize) -> Result<Kernel> {
    let composer = composer(caps, "zero_forward")?.module(shader!("00_zero"));
    fixed(composer, caps, &[ReadWrite, Uniform], count)
}

/// `copy_row_forward`: the batch's last row of `hidden` elements.
pub fn copy_row(caps: &Capabilities, hidden: usize) -> Result<Kernel> {
    let composer =
        composer(caps, "copy_row_forward")?.size("HIDDEN", hidden).module(shader!("00_copy_row"));
    fixed(composer, caps, &[Read, ReadWrite, Uniform], hidden)
}

/// `rope_forward` or `rope_backward` over the first `heads` heads of rows of `stride` elements.
/// Grid: `tokens · heads · head_dim / 2` invocations.
pub fn rope(
    caps: &Capabilities,
    heads: usize,
    head_dim: usize,
    stride: usize,
    forward: bool,
) -> Result<Kernel> {
    let composer = composer(caps, if forward { "rope_forward" } else { "rope_backward" })?
        .size("HEADS", heads)
        .size("HEAD_DIM", head_dim)
        .size("STRIDE", stride)
        .float("DIRECTION", if forward { 1.0 } else { -1.0 })
        .module(shader!("04_rope"));
    finish(composer, caps, &[ReadWrite, Read, Read, Uniform], heads * head_dim / 2)
}

fn with_activation(composer: Composer, shape: ActivationWidth) -> Composer {
    composer
        .size("WIDTH", shape.width)
        .module(shader!("lib/math"))
        .module(activation_module(shape.activation))
}

/// `activate` and `activate_derivative`, on top of `lib/math`.
pub(super) fn activation_module(activation: Activation) -> &'static str {
    match activation {
        Activation::Silu => shader!("lib/activation_silu"),
        Activation::Gelu => shader!("lib/activation_gelu"),
        Activation::GeluTanh => shader!("lib/activation_gelu_tanh"),
    }
}

/// `gated_activation_forward`. Grid: `tokens · width` invocations.
pub fn gated_activation(caps: &Capabilities, shape: ActivationWidth) -> Result<Kernel> {
    let composer = with_activation(composer(caps, "gated_activation_forward")?, shape)
        .module(shader!("06_gated_activation"));
    finish(composer, caps, &[Read, ReadWrite, Uniform], shape.width)
}

/// `gated_activation_backward`. Grid: `tokens · width` invocations.
pub fn gated_activation_backward(caps: &Capabilities, shape: ActivationWidth) -> Result<Kernel> {
    let composer = with_activation(composer(caps, "gated_activation_backward")?, shape)
        .module(shader!("09_gated_activation_backward"));
    finish(composer, caps, &[Read, Read, ReadWrite, ReadWrite, Uniform], shape.width)
}
