//! Products that compute the node behind them too: where the picked kernel can, that node has no dispatch of its own.

use super::linear::TokenRows;
use super::Lowering;
use crate::arch::WeightId;
use crate::error::Result;
use crate::format::WeightFormat;
use crate::graph::{Node, Op};
use crate::kernels::{self as k, Fused, Output};
use crate::plan::Slice;

impl Lowering<'_> {
    /// What a product of rows computes of the node behind it, and what it binds for that. The node's result is bound
    /// then: its own lowering finds it there.
    pub(super) fn fused_behind(
        &mut self,
        node: &Node,
        weight: WeightId,
        token_rows: TokenRows,
    ) -> Result<Option<(Output, Vec<Slice>)>> {
        let Some(next) = self.behind(node) else { return Ok(None) };
        match next.op {
            Op::Gate(gate) if gate.gated && self.gates => {
                let fused = Fused::Gated { activation: gate.activation };
                if !self.takes(weight, token_rows, fused) {
                    return Ok(None);
                }
                let activated = self.value(next.writes[0])?;
                Ok(Some((Output::Fused(fused), vec![activated])))
            }
            _ => Ok(None),
        }
    }

    /// The node that follows another one and reads nothing but what that writes.
    fn behind(&self, node: &Node) -> Option<&Node> {
        let nodes = &self.graph.nodes;
        let at = nodes.iter().position(|other| std::ptr::eq(other, node))?;
        nodes.get(at + 1).filter(|next| next.reads == node.writes)
    }

    /// Whether the product of rows with a weight takes on what is behind it.
    fn takes(&self, weight: WeightId, token_rows: TokenRows, fused: Fused) -> bool {
        let matrix = &self.params.matrices[weight];
        let plain = matrix.format == WeightFormat::F32 && matrix.parts.len() == 1;
        let shape = self.row_product(weight, 0, token_rows);
        plain && k::linear_fuses(self.builder.caps, &shape, fused)
    }
}
