//! Activations of the feed-forward block, gated or not.

#[cfg(feature = "testing")]
pub(crate) mod cases;
#[cfg(feature = "testing")]
pub(crate) mod twin;

use super::compose::{Composer, Kernel, Spec, read, read_write, uniform};
use super::modules::activation_module;
use super::shape::PartialSums;
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
    /// Results are in f16, two to a word. Only with a gate, and a width that is a multiple of 4.
    pub half: bool,
    /// The partial sums of what is read. Forward that is `gate | up`, whose sum the kernel also writes. Backward it is
    /// the gradient of the result. Only with a gate, and a width that is a multiple of 4.
    pub sums: PartialSums,
}

impl ActivationWidth {
    /// Whether an invocation computes four elements. Only then results may be in f16, and what is read in partial sums.
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
        debug_assert!(self.by_quads() || !self.half && self.sums == PartialSums::WHOLE, "{self:?}");
        let composer = Composer::flat(caps, spec)?
            .size("WIDTH", self.width)
            .size("ROW", self.invocations())
            .vectors(self.lanes())
            .when("F16", self.half)
            .when("GATED", self.gated);
        Ok(activation_module(composer, self.activation).summed_parts(self.sums, self.lanes()))
    }
}

/// Grid: an invocation for each element, or for each four.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ActivationForward(pub ActivationWidth);

impl Spec for ActivationForward {
    fn name(&self) -> &'static str {
        "activation_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self(shape) = *self;
        let input = if shape.gated { "gate_up" } else { "input" };
        let mut bindings = vec![read(input), read_write("output"), uniform("step")];
        if shape.sums != PartialSums::WHOLE {
            bindings.push(read_write("whole"));
        }
        let composer = shape.composer(caps, *self)?;
        let kernel =
            composer.by_row(caps, "06_activation_forward", &bindings, shape.invocations())?;
        Ok(kernel.of_parts(shape.sums))
    }
}

/// The gradients of [`ActivationForward`], and its result once more. Grid: the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ActivationBackward(pub ActivationWidth);

impl Spec for ActivationBackward {
    fn name(&self) -> &'static str {
        "activation_backward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self(shape) = *self;
        let [input, d_input] =
            if shape.gated { ["gate_up", "d_gate_up"] } else { ["input", "d_input"] };
        let bindings = [
            read(input),
            read("d_output"),
            read_write(d_input),
            read_write("output"),
            uniform("step"),
        ];
        let composer = shape.composer(caps, *self)?;
        let kernel =
            composer.by_row(caps, "09_activation_backward", &bindings, shape.invocations())?;
        Ok(kernel.of_parts(shape.sums))
    }
}
