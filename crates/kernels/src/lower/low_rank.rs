//! An adapter's products: short rows to the columns of their module, and the gradients of both. The
//! matrix B is read as it is, in f32, however the base's are.

use super::{Lowering, label};
use crate::arch::LowRank;
use crate::error::Result;
use crate::graph::{Node, ValueId};
use crate::kernels::{self as k, Constant, Form, LinearShape, Output, WriteMode};
use crate::plan::{Buffer, Launch, Range, Slice};

impl Lowering<'_> {
    pub(super) fn scale(&mut self, node: &Node, factor: f64) -> Result<()> {
        let (rows, columns) = (self.read(node, 0)?, self.columns(node.reads[0]));
        let kernel = self.builder.kernel(k::Scale { columns, factor: Constant(factor) })?;
        let launch = Launch::new(label(node.site, "scale"), kernel).bind("rows", rows);
        self.builder.dispatch(launch.flops((self.builder.tokens * columns) as f64))
    }

    /// `y += z · Bᵀ` in the module's columns of y.
    pub(super) fn low_rank(&mut self, node: &Node, low: LowRank) -> Result<()> {
        let (z, y) = (self.read(node, 0)?, self.written(node, 0)?);
        self.product_of_b(node, low, Form::MatmulT, [Some(z), None, Some(y)], WriteMode::Add)
    }

    /// `d_z = d_y · B`, of the module's columns of d_y.
    pub(super) fn low_rank_input(&mut self, node: &Node, low: LowRank) -> Result<()> {
        let (d_y, d_z) = (self.read(node, 0)?, self.written(node, 0)?);
        let operands = [Some(d_y), None, Some(d_z)];
        self.product_of_b(node, low, Form::Matmul, operands, WriteMode::Overwrite)
    }

    /// `d_B (+)= d_yᵀ · z`, of the module's columns of d_y.
    pub(super) fn low_rank_weight(
        &mut self,
        node: &Node,
        low: LowRank,
        write: WriteMode,
    ) -> Result<()> {
        let (d_y, z) = (self.read(node, 0)?, self.read(node, 1)?);
        self.product_of_b(node, low, Form::MatmulAt, [Some(d_y), Some(z), None], write)
    }

    /// A product with B or, in the operand that is none, of its gradient: of each part of it, which are
    /// columns of the wide rows, y or their gradient.
    fn product_of_b(
        &mut self,
        node: &Node,
        low: LowRank,
        form: Form,
        operands: [Option<Slice>; 3],
        mut write: WriteMode,
    ) -> Result<()> {
        let matrix = self.params.matrices[low.b].clone();
        for (index, part) in matrix.parts.iter().enumerate() {
            let (rank, tokens) = (matrix.cols, self.builder.tokens);
            let (name, wide, shape) = match form {
                Form::MatmulT => ("b", node.writes[0], [part.rows, rank]),
                Form::Matmul => ("b input", node.reads[0], [rank, part.rows]),
                Form::MatmulAt => ("b weight", node.reads[0], [rank, part.rows]),
            };
            let mut shape = LinearShape::new(form, shape[0], shape[1], tokens);
            let stride = self.columns(wide);
            if form == Form::MatmulT {
                shape.c_stride = stride;
            } else {
                shape.a_stride = stride;
            }
            let of_b = match form {
                Form::MatmulAt => self.gradient(low.b, index),
                Form::MatmulT | Form::Matmul => self.part(low.b, index, Buffer::Weights),
            };
            let col0 = (low.row0 + part.row0) as u32;
            let range = Range { col0, cols: part.rows as u32, ..self.builder.all_rows() };
            let (label, output) = (label(node.site, name), Output::Mode(write));
            let operands = operands.map(|operand| operand.unwrap_or(of_b));
            self.product(&label, &shape, output, operands, &[], range)?;
            if form == Form::Matmul {
                write = WriteMode::Add;
            }
        }
        Ok(())
    }

    pub(super) fn columns(&self, value: ValueId) -> usize {
        self.graph.values[value].columns
    }
}
