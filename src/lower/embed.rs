//! Embeddings of tokens and of positions: rows gathered, and their gradient scattered.

use super::Lowering;
use crate::arch::WeightId;
use crate::error::Result;
use crate::graph::Node;
use crate::kernels::{self as k, WeightFormat};
use crate::params::Matrix;
use crate::plan::{Buffer, Range, Slice};

impl Lowering<'_> {
    pub(super) fn embed(&mut self, node: &Node, weight: WeightId) -> Result<()> {
        let output = self.written(node, 0)?;
        for part in 0..self.params.matrices[weight].parts.len() {
            // The first part leaves them, whichever has the token.
            let left = self.left.angles.filter(|_| part == 0);
            let rotated = left.map_or(0, |left| left.angles.bytes as usize / 4);
            let (range, table) = (self.vocabulary_range(weight, part), self.table(weight));
            let (kernel, rows) = match table.format {
                WeightFormat::F32 => {
                    let kernel = k::embedding_forward(self.builder.caps, self.hidden(), rotated)?;
                    (kernel, self.part(weight, part, Buffer::Weights))
                }
                format => {
                    let (hidden, rows) = (self.hidden(), table.parts[part].rows);
                    let caps = self.builder.caps;
                    let kernel = k::embedding_packed(caps, (hidden, rows), format, rotated)?;
                    (kernel, self.row_operand(weight, part))
                }
            };
            let (step, columns) = (self.builder.step(), self.builder.range(range));
            let mut slices = vec![self.inputs.tokens, rows, output, step, columns];
            slices.extend(left.iter().flat_map(|left| [left.angles, left.table]));
            self.builder.dispatch_rows(node.site.to_string(), kernel, slices, range, 0.0)?;
        }
        Ok(())
    }

    fn table(&self, weight: WeightId) -> &Matrix {
        &self.params.matrices[weight]
    }

    /// The rows of a part of a table, for all tokens.
    fn vocabulary_range(&self, weight: WeightId, part: usize) -> Range {
        let part = &self.params.matrices[weight].parts[part];
        Range { col0: part.row0 as u32, cols: part.rows as u32, ..self.builder.all_rows() }
    }

    pub(super) fn embed_backward(
        &mut self,
        node: &Node,
        weight: WeightId,
        clear: bool,
    ) -> Result<()> {
        // A head that shares the table may have left its part of the gradient waiting.
        self.sum_products()?;
        let d_rows = self.read(node, 0);
        let hidden = self.hidden();
        let (tokens, order) = self.sorted_tokens();
        for part in 0..self.params.matrices[weight].parts.len() {
            let gradient = self.gradient(weight, part);
            if clear {
                self.clear(node, gradient)?;
            }
            let kernel = k::embedding_backward(self.builder.caps, hidden)?;
            let range = self.vocabulary_range(weight, part);
            let (step, columns) = (self.builder.step(), self.builder.range(range));
            let slices = vec![order, tokens, d_rows, gradient, step, columns];
            let flops = (self.builder.tokens * hidden) as f64;
            self.builder.dispatch_rows(node.site.to_string(), kernel, slices, range, flops)?;
        }
        Ok(())
    }

    /// On the first micro-step.
    fn clear(&mut self, node: &Node, gradient: Slice) -> Result<()> {
        let kernel = k::zero(self.builder.caps, gradient.bytes as usize / 4)?;
        let slices = vec![gradient, self.builder.step()];
        self.builder.dispatch(super::label(node.site, "zero"), kernel, slices, 0.0)
    }

    pub(super) fn positions(&mut self, node: &Node, weight: WeightId) -> Result<()> {
        let rows = self.written(node, 0)?;
        for part in 0..self.params.matrices[weight].parts.len() {
            let kernel = k::position_forward(self.builder.caps, self.hidden())?;
            let table = self.part(weight, part, crate::plan::Buffer::Weights);
            let slices = [rows, table, self.inputs.documents];
            self.positions_part(node, (weight, part), kernel, slices)?;
        }
        Ok(())
    }

    pub(super) fn positions_backward(&mut self, node: &Node, weight: WeightId) -> Result<()> {
        let (d_rows, ends) = (self.read(node, 0), self.batch().0.padded);
        for part in 0..self.params.matrices[weight].parts.len() {
            let gradient = self.gradient(weight, part);
            self.clear(node, gradient)?;
            let kernel = k::position_backward(self.builder.caps, self.hidden(), ends)?;
            let slices = [self.inputs.documents, d_rows, gradient];
            self.positions_part(node, (weight, part), kernel, slices)?;
        }
        Ok(())
    }

    fn positions_part(
        &mut self,
        node: &Node,
        (weight, part): (WeightId, usize),
        kernel: k::Kernel,
        [first, second, third]: [Slice; 3],
    ) -> Result<()> {
        let range = self.vocabulary_range(weight, part);
        let slices = vec![first, second, third, self.builder.step(), self.builder.range(range)];
        let flops = (self.builder.tokens * self.hidden()) as f64;
        self.builder.dispatch_rows(node.site.to_string(), kernel, slices, range, flops)
    }

    fn sorted_tokens(&self) -> (Slice, Slice) {
        let (batch, _) = self.batch();
        (batch.tokens(), batch.order())
    }
}
