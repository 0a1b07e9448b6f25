//! The adapter's nodes of a graph: modules that read the same rows are a group.

use super::GraphRun;
use crate::arch::{LowRank, LowRankGroup};
use crate::format::WriteMode;
use crate::graph::{Node, ValueId};
use crate::kernels::elementwise::twin::scale_forward;
use crate::twins::{Real, add_assign};
use std::ops::Range;

impl<R: Real> GraphRun<'_, R> {
    /// The modules of a group, and the columns of each one's short rows.
    fn modules(&self, group: LowRankGroup) -> Vec<(LowRank, Range<usize>)> {
        let of = |(index, low): (usize, &LowRank)| {
            let rank = self.columns(low.b);
            (*low, index * rank..(index + 1) * rank)
        };
        self.architecture.group(group).iter().enumerate().map(of).collect()
    }

    /// Some columns of a value.
    fn columns_of(&self, value: ValueId, columns: Range<usize>) -> Vec<R> {
        let rows = self.values[value].chunks_exact(self.graph.values[value].columns);
        rows.flat_map(|row| &row[columns.clone()]).copied().collect()
    }

    /// Adds to some columns of a value, which has `tokens` rows.
    fn add_to_columns(&mut self, value: ValueId, columns: Range<usize>, data: &[R]) {
        let stride = self.graph.values[value].columns;
        let rows = self.values[value].chunks_exact_mut(stride);
        for (row, data) in rows.zip(data.chunks_exact(columns.len())) {
            add_assign(&mut row[columns.clone()], data);
        }
    }

    /// Clears what modules write beside each other.
    fn clear(&mut self, value: ValueId, of: ValueId) {
        let rows = self.values[of].len() / self.graph.values[of].columns;
        self.values[value] = vec![R::ZERO; rows * self.graph.values[value].columns];
    }

    /// Short rows of a group: its input times each module's A, scaled.
    pub(super) fn short_rows(&mut self, node: &Node, group: LowRankGroup) {
        let (x, z) = (node.reads[0], node.writes[0]);
        self.clear(z, x);
        for (low, columns) in self.modules(group) {
            let mut product = self.product(low.a, &self.values[x], None);
            scale_forward(&mut product, R::from_f64(low.scale));
            self.add_to_columns(z, columns, &product);
        }
    }

    /// Adds to the output what each module gives: its short rows times B.
    pub(super) fn low_rank(&mut self, node: &Node, group: LowRankGroup) {
        for (low, columns) in self.modules(group) {
            let product = self.product(low.b, &self.columns_of(node.reads[0], columns), None);
            self.add_to_columns(node.writes[0], low.columns(), &product);
        }
    }

    /// Gradients of short rows: the output's gradient times each module's B, scaled.
    pub(super) fn low_rank_input(&mut self, node: &Node, group: LowRankGroup) {
        let (d_y, d_z) = (node.reads[0], node.writes[0]);
        self.clear(d_z, d_y);
        for (low, columns) in self.modules(group) {
            let mut product = self.input_gradient(low.b, &self.columns_of(d_y, low.columns()));
            scale_forward(&mut product, R::from_f64(low.scale));
            self.add_to_columns(d_z, columns, &product);
        }
    }

    /// The input's gradient: each module's gradient of short rows times A.
    pub(super) fn short_rows_input(&mut self, node: &Node, group: LowRankGroup, first: WriteMode) {
        let mut write = first;
        for (low, columns) in self.modules(group) {
            let d_x = self.input_gradient(low.a, &self.columns_of(node.reads[0], columns));
            self.write(node.writes[0], d_x, write);
            write = WriteMode::Add;
        }
    }

    /// Gradients of each module's A and B.
    pub(super) fn low_rank_weights(&mut self, node: &Node, group: LowRankGroup) {
        let [d_z, x, d_y, z] = [0, 1, 2, 3].map(|index| node.reads[index]);
        for (low, columns) in self.modules(group) {
            let d_short = self.columns_of(d_z, columns.clone());
            let d_a = self.weight_gradient(low.a, &d_short, &self.values[x]);
            self.gradient(low.a, d_a);
            let (d_wide, short) =
                (self.columns_of(d_y, low.columns()), self.columns_of(z, columns));
            let d_b = self.weight_gradient(low.b, &d_wide, &short);
            self.gradient(low.b, d_b);
        }
    }
}
