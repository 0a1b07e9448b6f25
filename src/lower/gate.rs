//! The activation of the feed-forward block.

use super::Lowering;
use crate::error::Result;
use crate::graph::{Gate, Node};
use crate::kernels::{self as k, ActivationWidth};
use crate::plan::Slice;

fn width(gate: Gate, half: bool) -> ActivationWidth {
    let Gate { width, activation, gated } = gate;
    ActivationWidth { width, activation, gated, half }
}

impl Lowering<'_> {
    pub(super) fn gate(&mut self, node: &Node, gate: Gate) -> Result<()> {
        // The product before it has computed it.
        if self.values[node.writes[0]].is_some() {
            return Ok(());
        }
        let (input, output) = (self.read(node, 0), self.written(node, 0)?);
        let half = self.in_halves(node.writes[0]);
        self.activate(node.site.to_string(), (gate, half), input, output)
    }

    /// `activate(gate) · up` of rows `gate | up`, or `activate(up)`; in f16 or not.
    pub(super) fn activate(
        &mut self,
        label: String,
        (gate, half): (Gate, bool),
        input: Slice,
        output: Slice,
    ) -> Result<()> {
        let kernel = k::activation(self.builder.caps, width(gate, half))?;
        let flops = 8.0 * (self.builder.tokens * gate.width) as f64;
        self.builder.dispatch(label, kernel, vec![input, output, self.builder.step()], flops)
    }

    pub(super) fn gate_backward(&mut self, node: &Node, gate: Gate) -> Result<()> {
        // The product that gives what it reads has computed it.
        if self.values[node.writes[0]].is_some() {
            return Ok(());
        }
        let (input, d_output) = (self.read(node, 0), self.read(node, 1));
        let (d_input, output) = (self.written(node, 0)?, self.written(node, 1)?);
        let kernel =
            k::activation_backward(self.builder.caps, width(gate, self.in_halves(node.writes[0])))?;
        let slices = vec![input, d_output, d_input, output, self.builder.step()];
        let flops = 16.0 * (self.builder.tokens * gate.width) as f64;
        self.builder.dispatch(node.site.to_string(), kernel, slices, flops)
    }
}
