//! Rows that interventions change.

use super::Lowering;
use crate::error::Result;
use crate::graph::{InterventionSite, Node};
use crate::kernels::{self as k, InterventionLayout};
use crate::plan::{Buffer, Launch, Range, Slice};

impl Lowering<'_> {
    /// `x` in place, or its sum with a second read.
    pub(super) fn intervene(&mut self, node: &Node, site: InterventionSite) -> Result<()> {
        let (columns, x, residual) =
            (self.columns(node.reads[0]), self.read(node, 0)?, self.second(node)?);
        let sum = residual.map(|_| self.written(node, 0)).transpose()?;
        let layout = InterventionLayout::new(self.params.architecture.layers.len(), self.hidden());
        let kernel = k::InterveneForward { columns, residual: residual.is_some(), layout };
        let kernel = self.builder.kernel(kernel)?;
        let numbers = Slice::new(Buffer::Interventions, 0, layout.words as u64 * 4);
        let launch = Launch::new(node.site, kernel)
            .rows(Range { col0: site.number() as u32, ..self.builder.all_rows() })
            .bind("x", x)
            .bind("documents", self.inputs.documents)
            .bind("interventions", numbers)
            .bind_some("residual", residual)
            .bind_some("sum", sum);
        self.builder.dispatch(launch.flops((self.builder.tokens * columns) as f64))
    }
}
