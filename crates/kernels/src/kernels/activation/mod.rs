//! Activations of the feed-forward block, gated or not.

#[cfg(feature = "testing")]
pub(crate) mod cases;
#[cfg(feature = "testing")]
pub(crate) mod twin;

use super::compose::{Composer, Kernel, Spec, read, read_write, uniform};
use super::modules::activation_module;
use super::shape::Parts;
use crate::caps::Capabilities;
use crate::config::Activation;
use crate::error::Result;

/// Width of the feed-forward block's hidden layer, and its activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ActivationWidth {
    pub width: usize,
    pub activation: Activation,
    /// Rows have another `width` elements, which the activation of the first ones multiplies.
    pub gated: bool,
    /// Results lie in f16, two to a word: only of gates whose width is a multiple of 4.
    pub half: bool,
    /// How what is read lies: `gate | up`, which the forward kernel then leaves whole too, and for the backward one the
    /// gradient of the result. In parts only of gates whose width is a multiple of 4.
    pub parts: Parts,
}

impl ActivationWidth {
    /// Whether an invocation has four elements. Then results may lie in f16, and what is read in parts.
    pub const fn by_quads(self) -> bool {
        self.gated && self.width.is_multiple_of(4)
    }

    /// Elements of an invocation.
    const fn lanes(self) -> usize {
        if self.by_quads() { 4 } else { 1 }
    }

    /// For a row.
    const fn invocations(self) -> usize {
        self.width / self.lanes()
    }

    fn composer(self, caps: &Capabilities, spec: impl Spec) -> Result<Composer> {
        debug_assert!(self.by_quads() || !self.half && self.parts == Parts::WHOLE, "{self:?}");
        let composer = Composer::flat(caps, spec)?
            .size("WIDTH", self.width)
            .size("ROW", self.invocations())
            .vectors(self.lanes())
            .when("F16", self.half);
        Ok(activation_module(composer, self.activation).summed_parts(self.parts, self.lanes()))
    }
}

/// Grid: an invocation for each element, or for each four.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ActivationForward(pub ActivationWidth);

impl Spec for ActivationForward {
    fn name(&self) -> &'static str {
        if self.0.gated { "gated_activation_forward" } else { "activation_forward" }
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self(shape) = *self;
        let (file, input) = match shape.gated {
            true => ("06_gated_activation_forward", "gate_up"),
            false => ("06_activation_forward", "input"),
        };
        let mut bindings = vec![read(input), read_write("output"), uniform("step")];
        if shape.parts != Parts::WHOLE {
            bindings.push(read_write("whole"));
        }
        let composer = shape.composer(caps, *self)?;
        let kernel = composer.by_row(caps, file, &bindings, shape.invocations())?;
        Ok(kernel.of_parts(shape.parts))
    }
}

/// The gradients of [`ActivationForward`], and its result once more. Grid: the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ActivationBackward(pub ActivationWidth);

impl Spec for ActivationBackward {
    fn name(&self) -> &'static str {
        if self.0.gated { "gated_activation_backward" } else { "activation_backward" }
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self(shape) = *self;
        let (file, [input, d_input]) = match shape.gated {
            true => ("09_gated_activation_backward", ["gate_up", "d_gate_up"]),
            false => ("09_activation_backward", ["input", "d_input"]),
        };
        let bindings = [
            read(input),
            read("d_output"),
            read_write(d_input),
            read_write("output"),
            uniform("step"),
        ];
        let composer = shape.composer(caps, *self)?;
        let kernel = composer.by_row(caps, file, &bindings, shape.invocations())?;
        Ok(kernel.of_parts(shape.parts))
    }
}
