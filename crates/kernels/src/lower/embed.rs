//! Embeddings of tokens and of positions: rows gathered, and their gradient scattered.

use super::Lowering;
use crate::arch::WeightId;
use crate::error::Result;
use crate::graph::{Node, Site};
use crate::kernels::{self as k, WeightFormat};
use crate::plan::{Buffer, Launch, NamedSlice, Range, Slice};
use std::rc::Rc;

impl Lowering<'_> {
    /// Rows of the tokens and, into the first of `[angles, table]`, the angles of the newest row's position.
    pub(super) fn embed(
        &mut self,
        site: Site,
        weight: WeightId,
        output: Slice,
        angles: Option<[Slice; 2]>,
    ) -> Result<()> {
        for part in 0..self.params.matrices[weight].parts.len() {
            // The first part copies them, whichever has the token.
            let angles = angles.filter(|_| part == 0);
            let rotated = angles.map_or(0, |[angles, _]| angles.bytes as usize / 4);
            let (range, matrix) =
                (self.vocabulary_range(weight, part), &self.params.matrices[weight]);
            let (hidden, rows, format) = (self.hidden(), matrix.parts[part].rows, matrix.format);
            let kernel = k::EmbeddingForward { hidden, rows, format, rotated };
            let table = match format {
                WeightFormat::F32 => ("weight", self.part(weight, part, Buffer::Weights)),
                _ => self.row_operand(weight, part),
            };
            let kernel = self.builder.kernel(kernel)?;
            let launch = Launch::new(site, kernel)
                .rows(range)
                .bind("tokens", self.inputs.tokens)
                .bind_all([table])
                .bind("output", output)
                .bind_some("angles", angles.map(|[angles, _]| angles))
                .bind_some("table", angles.map(|[_, table]| table));
            self.builder.dispatch(launch)?;
        }
        Ok(())
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
        let d_rows = self.read(node, 0)?;
        let (hidden, padding) = (self.hidden(), self.params.architecture.padding);
        let (batch, _) = self.batch()?;
        for part in 0..self.params.matrices[weight].parts.len() {
            let gradient = self.gradient(weight, part);
            if clear {
                self.clear(node, gradient)?;
            }
            let kernel = self.builder.kernel(k::EmbeddingBackward { hidden, padding })?;
            let launch = Launch::new(node.site, kernel)
                .rows(self.vocabulary_range(weight, part))
                .bind("order", batch.order())
                .bind("tokens", batch.tokens())
                .bind("d_output", d_rows)
                .bind("d_weight", gradient);
            self.builder.dispatch(launch.flops((self.builder.tokens * hidden) as f64))?;
        }
        Ok(())
    }

    /// On the first micro-step.
    fn clear(&mut self, node: &Node, gradient: Slice) -> Result<()> {
        let kernel = self.builder.kernel(k::Zero { count: gradient.bytes as usize / 4 })?;
        let launch = Launch::new(super::label(node.site, "zero"), kernel);
        self.builder.dispatch(launch.bind("data", gradient))
    }

    pub(super) fn positions(&mut self, node: &Node, weight: WeightId) -> Result<()> {
        let rows = self.written(node, 0)?;
        for part in 0..self.params.matrices[weight].parts.len() {
            let kernel = self.builder.kernel(k::PositionForward { hidden: self.hidden() })?;
            let table = self.part(weight, part, Buffer::Weights);
            self.positions_part(node, (weight, part), kernel, [("x", rows), ("weight", table)])?;
        }
        Ok(())
    }

    pub(super) fn positions_backward(&mut self, node: &Node, weight: WeightId) -> Result<()> {
        let (d_rows, ends) = (self.read(node, 0)?, self.batch()?.0.padded);
        for part in 0..self.params.matrices[weight].parts.len() {
            let gradient = self.gradient(weight, part);
            self.clear(node, gradient)?;
            let kernel =
                self.builder.kernel(k::PositionBackward { hidden: self.hidden(), ends })?;
            let operands = [("d_output", d_rows), ("d_weight", gradient)];
            self.positions_part(node, (weight, part), kernel, operands)?;
        }
        Ok(())
    }

    fn positions_part(
        &mut self,
        node: &Node,
        (weight, part): (WeightId, usize),
        kernel: Rc<k::Kernel>,
        operands: [NamedSlice; 2],
    ) -> Result<()> {
        let launch = Launch::new(node.site, kernel)
            .rows(self.vocabulary_range(weight, part))
            .bind("documents", self.inputs.documents)
            .bind_all(operands);
        self.builder.dispatch(launch.flops((self.builder.tokens * self.hidden()) as f64))
    }
}
