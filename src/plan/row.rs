//! Stretches of a plan for one decoded row: matrix-vector products, with the norm before and the
//! activation after them in the same kernel where that is faster.

use super::model::Model;
use super::{Range, Slice};
use crate::error::Result;
use crate::kernels::{self as k, AttentionShape, MatvecInput, MatvecOutput, MatvecShape};

impl Model<'_> {
    /// `output = matrix · input`, optionally plus a residual.
    pub fn matvec(
        &mut self,
        label: &str,
        matrix: usize,
        input: Slice,
        output: Slice,
        residual: Option<Slice>,
    ) -> Result<()> {
        let then = residual.map_or(MatvecOutput::Plain, |_| MatvecOutput::Residual);
        self.rows_of_matrix(label, matrix, MatvecInput::Plain, then, [input, output], residual)
    }

    /// `output = matrix · norm(input)`.
    pub fn normed_matvec(
        &mut self,
        label: &str,
        norm: usize,
        matrix: usize,
        input: Slice,
        output: Slice,
    ) -> Result<()> {
        if !k::matvec_fuses(self.builder.caps) {
            let normed = self.tensor("norm", self.hidden())?;
            self.norm(&format!("{label} norm"), norm, input, normed)?;
            return self.matvec(label, matrix, normed, output, None);
        }
        let (normed, weight) = (self.norm_input(), self.weight(norm));
        let io = [input, output];
        self.rows_of_matrix(label, matrix, normed, MatvecOutput::Plain, io, Some(weight))
    }

    /// `activate(gate) · up` of the two halves of `matrix · norm(input)`.
    pub fn gated_matvec(
        &mut self,
        label: &str,
        norm: usize,
        matrix: usize,
        input: Slice,
    ) -> Result<Slice> {
        let feed = self.config.intermediate_size;
        if !self.fuses_pairs(matrix) {
            let gate_up = self.tensor("gate and up", 2 * feed)?;
            self.normed_matvec(label, norm, matrix, input, gate_up)?;
            return self.activate(&format!("{label} activation"), gate_up);
        }
        let output = self.tensor("activation", feed)?;
        let shape = MatvecShape {
            n: feed,
            k: self.hidden(),
            input: self.norm_input(),
            output: MatvecOutput::Gated(self.config.hidden_act),
            weights: self.weights,
        };
        let kernel = k::matvec(self.builder.caps, shape)?;
        let range = Range { row0: 0, rows: 1, col0: 0, cols: feed as u32 };
        let columns = self.builder.range(range);
        let rows = self.row_operand(matrix, 0);
        let slices = vec![input, rows, output, columns, self.weight(norm)];
        let flops = 4.0 * (feed * self.hidden()) as f64;
        self.builder.dispatch(label, kernel, slices, flops)?;
        Ok(output)
    }

    /// Whether a kernel can multiply pairs of rows, a gate's and the one above it or those half a head
    /// apart: the two may lie in different parts of a matrix that is cut.
    pub fn fuses_pairs(&self, matrix: usize) -> bool {
        self.layout.matrices[matrix].parts.len() == 1 && k::matvec_fuses(self.builder.caps)
    }

    /// The heads of `matrix · norm(input)`, rotated: of queries to `query`, of keys and values behind
    /// the rows of a cache of f32.
    pub fn heads_matvec(
        &mut self,
        label: &str,
        shape: AttentionShape,
        [norm, matrix]: [usize; 2],
        [input, query, table, cache]: [Slice; 4],
    ) -> Result<()> {
        let matvec = MatvecShape {
            n: shape.stride() / 2,
            k: self.hidden(),
            input: self.norm_input(),
            output: MatvecOutput::Heads(shape),
            weights: self.weights,
        };
        let kernel = k::matvec(self.builder.caps, matvec)?;
        let (rows, step) = (self.row_operand(matrix, 0), self.builder.step());
        let slices = vec![input, rows, query, step, self.weight(norm), table, cache];
        let flops = 2.0 * (shape.stride() * self.hidden()) as f64;
        self.builder.dispatch(label, kernel, slices, flops)
    }

    fn norm_input(&self) -> MatvecInput {
        MatvecInput::Norm { epsilon: self.config.rms_norm_eps }
    }

    /// A dispatch for each part of a matrix; `last` is the residual or the norm's weight.
    fn rows_of_matrix(
        &mut self,
        label: &str,
        matrix: usize,
        input: MatvecInput,
        output: MatvecOutput,
        [from, to]: [Slice; 2],
        last: Option<Slice>,
    ) -> Result<()> {
        let whole = self.layout.matrices[matrix].clone();
        for (index, part) in whole.parts.iter().enumerate() {
            let weights = self.weights;
            let shape = MatvecShape { n: part.rows, k: whole.cols, input, output, weights };
            let kernel = k::matvec(self.builder.caps, shape)?;
            let range = Range { row0: 0, rows: 1, col0: part.row0 as u32, cols: part.rows as u32 };
            let weight = self.row_operand(matrix, index);
            let mut slices = vec![from, weight, to, self.builder.range(range)];
            slices.extend(last);
            let flops = 2.0 * (part.rows * whole.cols) as f64;
            self.builder.dispatch(label, kernel, slices, flops)?;
        }
        Ok(())
    }
}
