//! The activation of the feed-forward block.

use super::Lowering;
use super::linear::TokenRows;
use super::parts::InParts;
use crate::arch::WeightId;
use crate::error::Result;
use crate::graph::{Gate, Node, Op};
use crate::kernels::{self as k, ActivationWidth, Output, Parts, WeightFormat};
use crate::plan::{Launch, Range, Slice};

fn width(gate: Gate, half: bool, parts: Parts) -> ActivationWidth {
    let Gate { width, activation, gated } = gate;
    ActivationWidth { width, activation, gated, half, parts }
}

/// Whether the kernels of a gate can add up parts.
pub(super) fn sums(gate: Gate) -> bool {
    width(gate, false, Parts::WHOLE).by_quads()
}

impl Lowering<'_> {
    pub(super) fn gate(&mut self, node: &Node, gate: Gate) -> Result<()> {
        let (input, output) = (self.read(node, 0), self.written(node, 0)?);
        let half = self.in_halves(node.writes[0]);
        let summed = self.parts_of(node.reads[0]);
        self.activate(node.site.to_string(), (gate, half), [input, output], summed)
    }

    /// `activate(gate) · up` of rows `gate | up`, or `activate(up)`; in f16 or not. With parts of these rows it also writes
    /// them.
    pub(super) fn activate(
        &mut self,
        label: String,
        (gate, half): (Gate, bool),
        [rows, output]: [Slice; 2],
        summed: Option<InParts>,
    ) -> Result<()> {
        let (input, parts) = summed.map_or((rows, Parts::WHOLE), |it| (it.slice, it.parts));
        let kernel = k::activation(self.builder.caps, width(gate, half, parts))?;
        let launch = Launch::new(label, kernel)
            .bind(if gate.gated { "gate_up" } else { "input" }, input)
            .bind("output", output)
            .bind_some("whole", summed.map(|_| rows));
        self.builder.dispatch(launch.flops(8.0 * (self.builder.tokens * gate.width) as f64))
    }

    pub(super) fn gate_backward(&mut self, node: &Node, gate: Gate) -> Result<()> {
        // The product that gives what it reads has computed it.
        if self.values[node.writes[0]].is_some() {
            return Ok(());
        }
        let (input, (d_output, parts)) = (self.read(node, 0), self.read_parts(node, 1));
        let (d_input, output) = (self.written(node, 0)?, self.written(node, 1)?);
        let shape = width(gate, self.in_halves(node.writes[0]), parts);
        let kernel = k::activation_backward(self.builder.caps, shape)?;
        let [of_input, of_d_input] =
            if gate.gated { ["gate_up", "d_gate_up"] } else { ["input", "d_input"] };
        let launch = Launch::new(node.site.to_string(), kernel)
            .bind(of_input, input)
            .bind("d_output", d_output)
            .bind(of_d_input, d_input)
            .bind("output", output);
        self.builder.dispatch(launch.flops(16.0 * (self.builder.tokens * gate.width) as f64))
    }

    /// The gradients of gate and up from the product that gives the gradient of their gate's result, where the picked
    /// kernel can and nothing else has a part in that result. The gate's own backward node finds its results there.
    pub(super) fn gate_gradient(
        &mut self,
        label: &str,
        node: &Node,
        weight: WeightId,
        token_rows: TokenRows,
    ) -> Result<bool> {
        let Some(next) = self.only_reader(node) else { return Ok(false) };
        let Op::GateBackward(gate @ Gate { gated: true, .. }) = next.op else { return Ok(false) };
        let matrix = &self.params.matrices[weight];
        let whole = matrix.format == WeightFormat::F32 && matrix.parts.len() == 1;
        let shape = self.input_product(weight, 0, token_rows);
        if !(whole && k::linear_gives_gate_gradient(self.builder.caps, &shape)) {
            return Ok(false);
        }
        let (d_output, gate_up) = (self.read(node, 0), self.read(next, 0));
        let (gradient, activated) = (self.written(next, 0)?, self.written(next, 1)?);
        let (matrix, shape) = self.operand(label, weight, 0, shape)?;
        let output = Output::GateGradient(gate.activation);
        let range = Range { cols: shape.k as u32, ..token_rows.rows };
        let operands = [d_output, matrix, gradient];
        let added = [("gate_up", gate_up), ("activated", activated)];
        self.product(label, &shape, output, operands, &added, range)?;
        Ok(true)
    }
}
