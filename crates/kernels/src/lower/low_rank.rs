//! An adapter's products: short rows, what they add to the columns of their modules, and the gradients of both. Its
//! matrices are read as they are, in f32, however the base's are.

use super::{Lowering, label};
use crate::arch::LowRankGroup;
use crate::error::{Error, Result};
use crate::graph::{Node, Op, ValueId};
use crate::kernels::{self as k, Constant, LowRankSide, WriteMode};
use crate::layout::{LowRankPiece, low_rank_pieces};
use crate::plan::{Buffer, Launch, LowRankTerms};

impl Lowering<'_> {
    pub(super) fn scale(&mut self, node: &Node, factor: f64) -> Result<()> {
        let (rows, columns) = (self.read(node, 0)?, self.columns(node.reads[0]));
        let kernel = self.builder.kernel(k::Scale { columns, factor: Constant(factor) })?;
        let launch = Launch::new(label(node.site, "scale"), kernel).bind("rows", rows);
        self.builder.dispatch(launch.flops((self.builder.tokens * columns) as f64))
    }

    /// `z = scale · x · Aᵀ`, of all modules beside each other.
    pub(super) fn short_rows(&mut self, node: &Node, group: LowRankGroup) -> Result<()> {
        let of = (LowRankSide::A, false, self.low_rank_scale(group));
        let name = node.site.to_string();
        self.low_rank_products(node, &name, group, of, [WriteMode::Overwrite; 2])
    }

    /// `y += z · Bᵀ`, in each module's columns of y.
    pub(super) fn low_rank(&mut self, node: &Node, group: LowRankGroup) -> Result<()> {
        let of = (LowRankSide::B, false, 1.0);
        self.low_rank_products(node, &label(node.site, "b"), group, of, [WriteMode::Add; 2])
    }

    /// `d_z = scale · d_y · B`, of each module's columns of d_y.
    pub(super) fn low_rank_input(&mut self, node: &Node, group: LowRankGroup) -> Result<()> {
        let of = (LowRankSide::B, true, self.low_rank_scale(group));
        let modes = [WriteMode::Overwrite; 2];
        self.low_rank_products(node, &label(node.site, "b input"), group, of, modes)
    }

    /// `d_x (+)= d_z · A`, of all modules.
    pub(super) fn short_rows_input(
        &mut self,
        node: &Node,
        group: LowRankGroup,
        write: WriteMode,
    ) -> Result<()> {
        let of = (LowRankSide::A, true, 1.0);
        let modes = [write, WriteMode::Add];
        self.low_rank_products(node, &label(node.site, "input"), group, of, modes)
    }

    /// The terms of a node that adds to a product's result, for that product's own sums.
    pub(super) fn low_rank_terms(&self, index: usize) -> Result<LowRankTerms> {
        let node = &self.graph.nodes[index];
        let (Op::LowRank(group) | Op::ShortRowsInput { group, .. }) = node.op else {
            return Err(Error::internal(format!("{} adds nothing to a product", node.site)));
        };
        let pieces = low_rank_pieces(self.params, group, Buffer::Weights);
        let [LowRankPiece { shape, slice: weights, .. }] = &*pieces else {
            return Err(Error::internal(format!("{} is in pieces", node.site)));
        };
        let (shape, weights) = (*shape, *weights);
        Ok(LowRankTerms { shape, short_rows: self.read(node, 0)?, weights })
    }

    fn low_rank_scale(&self, group: LowRankGroup) -> f64 {
        self.params.architecture.low_rank[group.first].scale
    }

    /// The node's read times the matrices of one side. The first piece and the others are written by these modes, but for
    /// one that continues sums: it is added to them.
    fn low_rank_products(
        &mut self,
        node: &Node,
        label: &str,
        group: LowRankGroup,
        (side, backward, scale): (LowRankSide, bool, f64),
        [first, others]: [WriteMode; 2],
    ) -> Result<()> {
        let (from, to) = (self.read(node, 0)?, self.written(node, 0)?);
        let rows = self.layouts.element(node.reads.first());
        let pieces = low_rank_pieces(self.params, group, Buffer::Weights).into_iter();
        let own = pieces.filter(|piece| piece.only.is_none_or(|only| only == side));
        for (index, LowRankPiece { shape, slice, continues, .. }) in own.enumerate() {
            let mode = match index {
                _ if continues => WriteMode::Add,
                0 => first,
                _ => others,
            };
            let scale = Constant(scale);
            let product = k::LowRankProduct { shape, side, backward, scale, mode, rows };
            let kernel = self.builder.kernel(product)?;
            let launch = Launch::new(label, kernel)
                .bind("rows", from)
                .bind("weights", slice)
                .bind("result", to);
            let flops = 2.0 * (product.multiplies() * self.builder.tokens) as f64;
            self.builder.dispatch(launch.flops(flops))?;
        }
        Ok(())
    }

    /// `d_A (+)= d_zᵀ · x` and `d_B (+)= d_yᵀ · z`, of each module.
    pub(super) fn low_rank_weights(
        &mut self,
        node: &Node,
        group: LowRankGroup,
        mode: WriteMode,
    ) -> Result<()> {
        let rows = [1, 2].map(|index| self.layouts.element(node.reads.get(index)));
        let name = label(node.site, "weights");
        for piece in low_rank_pieces(self.state, group, Buffer::Gradients) {
            let LowRankPiece { shape, slice, only, .. } = piece;
            let weights = k::LowRankWeights { shape, only, mode, rows };
            let kernel = self.builder.kernel(weights)?;
            let mut launch = Launch::new(&name, kernel).bind("gradient", slice);
            for (index, operand) in ["d_z", "x", "d_y", "z"].into_iter().enumerate() {
                launch = launch.bind(operand, self.read(node, index)?);
            }
            let flops = 2.0 * (weights.multiplies() * self.builder.tokens) as f64;
            self.builder.dispatch(launch.flops(flops))?;
        }
        Ok(())
    }

    pub(super) fn columns(&self, value: ValueId) -> usize {
        self.graph.values[value].columns
    }
}
