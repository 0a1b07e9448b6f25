//! Products that compute the node behind them too: where the picked kernel can, that node has no dispatch of its own.

use super::Lowering;
use super::linear::TokenRows;
use super::rope::rope_shape;
use crate::arch::WeightId;
use crate::error::Result;
use crate::graph::{Gate, Graph, Node, Op};
use crate::kernels::{self as k, Fused, LinearShape, Output, WeightFormat};
use crate::plan::{Range, Slice};

impl<'a> Lowering<'a> {
    /// The gradient of a gate from the product that gives the gradient of its result, where nothing else has a part in
    /// that. The gate's own backward node finds its results there.
    pub(super) fn gate_gradient(
        &mut self,
        label: &str,
        node: &Node,
        weight: WeightId,
        token_rows: TokenRows,
    ) -> Result<bool> {
        let Some((next, gate)) = self.gate_before(node) else { return Ok(false) };
        let shape = self.input_product(weight, 0, token_rows);
        let fused = Fused::GateGradient { activation: gate.activation };
        if !self.takes(weight, &shape, fused) {
            return Ok(false);
        }
        let (d_output, gate_up) = (self.read(node, 0), self.read(next, 0));
        let (gradient, activated) = (self.written(next, 0)?, self.written(next, 1)?);
        let (matrix, shape) = self.operand(label, weight, 0, shape)?;
        let operands = [d_output, matrix, gradient];
        let range = Range { cols: shape.k as u32, ..token_rows.rows };
        let added = [gate_up, activated];
        self.product(label, &shape, Output::Fused(fused), operands, &added, range)?;
        Ok(true)
    }

    /// The backward node of a gate that alone reads what `node` alone writes.
    fn gate_before(&self, node: &Node) -> Option<(&'a Node, Gate)> {
        let value = node.writes[0];
        let touches = |other: &&Node| other.reads.contains(&value) || other.writes.contains(&value);
        let graph: &'a Graph = self.graph;
        let mut touching = graph.nodes.iter().filter(touches);
        let (first, second, more) = (touching.next()?, touching.next()?, touching.next());
        match second.op {
            Op::GateBackward(gate) if gate.gated && more.is_none() => {
                std::ptr::eq(first, node).then_some((second, gate))
            }
            _ => None,
        }
    }

    /// What a product of rows computes of the node behind it, and what it binds for that. The node's result is bound
    /// then: its own lowering finds it there.
    pub(super) fn fused_behind(
        &mut self,
        node: &Node,
        weight: WeightId,
        token_rows: TokenRows,
    ) -> Result<Option<(Output, Vec<Slice>)>> {
        let Some(next) = self.behind(node) else { return Ok(None) };
        let fused = match next.op {
            Op::Gate(gate) if gate.gated && self.gates => {
                Fused::Gated { activation: gate.activation }
            }
            Op::Rope { attention } => {
                Fused::Turned(rope_shape(&self.params.architecture, attention))
            }
            _ => return Ok(None),
        };
        if !self.takes(weight, &self.row_product(weight, 0, token_rows), fused) {
            return Ok(None);
        }
        let added = if let Op::Rope { attention } = next.op {
            let rows = self.written(node, 0)?;
            self.bind(next.writes[0], rows);
            vec![self.angles(attention), self.inputs.documents]
        } else {
            vec![self.value(next.writes[0])?]
        };
        Ok(Some((Output::Fused(fused), added)))
    }

    /// The node that follows another one and reads nothing but what that writes.
    fn behind(&self, node: &Node) -> Option<&'a Node> {
        let graph: &'a Graph = self.graph;
        let nodes = &graph.nodes;
        let at = nodes.iter().position(|other| std::ptr::eq(other, node))?;
        nodes.get(at + 1).filter(|next| next.reads == node.writes)
    }

    /// Whether a product with a weight takes on what is behind it.
    fn takes(&self, weight: WeightId, shape: &LinearShape, fused: Fused) -> bool {
        let matrix = &self.params.matrices[weight];
        let plain = matrix.format == WeightFormat::F32 && matrix.parts.len() == 1;
        plain && k::linear_fuses(self.builder.caps, shape, fused)
    }
}
