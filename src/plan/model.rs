//! Model-shaped stretches of a plan: linear layers and norms with their gradients, embedding, RoPE.

use super::builder::Builder;
use super::{Buffer, Range, Slice};
use crate::config::ModelConfig;
use crate::error::Result;
use crate::kernels::{
    self as k, ActivationWidth, AttentionShape, Form, LinearShape, NORM_ROWS, Output, WriteMode,
};
use crate::layout::Layout;

/// Builds model-shaped stretches of a plan.
pub(super) struct Model<'a> {
    pub config: &'a ModelConfig,
    pub layout: &'a Layout,
    pub builder: Builder<'a>,
}

impl<'a> Model<'a> {
    pub fn hidden(&self) -> usize {
        self.config.hidden_size
    }

    pub fn attention_shape(&self) -> AttentionShape {
        AttentionShape::of(self.config, self.builder.tokens)
    }

    pub fn activation(&self) -> ActivationWidth {
        ActivationWidth { width: self.config.intermediate_size, activation: self.config.hidden_act }
    }

    /// A part of a matrix in a set of shards.
    pub fn part(&self, matrix: usize, part: usize, set: fn(usize) -> Buffer) -> Slice {
        let matrix = &self.layout.matrices[matrix];
        let part = &matrix.parts[part];
        Slice::new(set(part.shard), part.offset as u64 * 4, (part.rows * matrix.cols) as u64 * 4)
    }

    pub fn weight(&self, matrix: usize) -> Slice {
        self.part(matrix, 0, Buffer::Weights)
    }

    pub fn tensor(&mut self, what: &str, columns: usize) -> Result<Slice> {
        self.builder.tensor(what, self.builder.tokens as u64 * columns as u64)
    }

    /// `output = input · matrixᵀ`, optionally plus a residual; `rows` are the token rows covered.
    pub fn linear(
        &mut self,
        label: &str,
        matrix: usize,
        input: Slice,
        output: Slice,
        residual: Option<Slice>,
        rows: Range,
    ) -> Result<()> {
        let shape = self.layout.matrices[matrix].clone();
        for (index, part) in shape.parts.iter().enumerate() {
            let product = LinearShape {
                form: Form::MatmulT,
                n: part.rows,
                k: shape.cols,
                a_stride: shape.cols,
                c_stride: shape.rows,
                tokens: rows.rows as usize,
            };
            let mode = if residual.is_some() {
                Output::Residual
            } else {
                Output::Mode(WriteMode::Overwrite)
            };
            let kernel = k::linear(self.builder.caps, &product, mode)?;
            let range = Range { col0: part.row0 as u32, cols: part.rows as u32, ..rows };
            let mut slices = vec![
                input,
                self.part(matrix, index, Buffer::Weights),
                output,
                self.builder.step(),
                self.builder.range(range),
            ];
            slices.extend(residual);
            self.builder.dispatch_rows(label, kernel, slices, range, product_flops(&product))?;
        }
        Ok(())
    }

    /// `d_input = d_output · matrix`.
    pub fn input_gradient(
        &mut self,
        label: &str,
        matrix: usize,
        d_output: Slice,
        d_input: Slice,
        rows: Range,
    ) -> Result<()> {
        let shape = self.layout.matrices[matrix].clone();
        for (index, part) in shape.parts.iter().enumerate() {
            let product = LinearShape {
                form: Form::Matmul,
                n: shape.cols,
                k: part.rows,
                a_stride: shape.rows,
                c_stride: shape.cols,
                tokens: rows.rows as usize,
            };
            let mode = if index == 0 { WriteMode::Overwrite } else { WriteMode::Add };
            let kernel = k::linear(self.builder.caps, &product, Output::Mode(mode))?;
            let range = Range { col0: part.row0 as u32, cols: part.rows as u32, ..rows };
            let slices = vec![
                d_output,
                self.part(matrix, index, Buffer::Weights),
                d_input,
                self.builder.step(),
                self.builder.range(range),
            ];
            self.builder.dispatch_rows(label, kernel, slices, range, product_flops(&product))?;
        }
        Ok(())
    }

    /// `d_matrix (+)= d_outputᵀ · input`.
    pub fn weight_gradient(
        &mut self,
        label: &str,
        matrix: usize,
        d_output: Slice,
        input: Slice,
        rows: Range,
        mode: WriteMode,
    ) -> Result<()> {
        let shape = self.layout.matrices[matrix].clone();
        for (index, part) in shape.parts.iter().enumerate() {
            let product = LinearShape {
                form: Form::MatmulAt,
                n: shape.cols,
                k: part.rows,
                a_stride: shape.rows,
                c_stride: shape.cols,
                tokens: rows.rows as usize,
            };
            let kernel = k::linear(self.builder.caps, &product, Output::Mode(mode))?;
            let range = Range { col0: part.row0 as u32, cols: part.rows as u32, ..rows };
            let slices = vec![
                d_output,
                input,
                self.part(matrix, index, Buffer::Gradients),
                self.builder.step(),
                self.builder.range(range),
            ];
            self.builder.dispatch_rows(label, kernel, slices, range, product_flops(&product))?;
        }
        Ok(())
    }

    pub fn norm(&mut self, label: &str, matrix: usize, input: Slice, output: Slice) -> Result<()> {
        let kernel =
            k::rms_norm_forward(self.builder.caps, self.hidden(), self.config.rms_norm_eps)?;
        let slices = vec![input, self.weight(matrix), output, self.builder.step()];
        let flops = 4.0 * (self.builder.tokens * self.hidden()) as f64;
        self.builder.dispatch(label, kernel, slices, flops)
    }

    pub fn norm_backward(
        &mut self,
        label: &str,
        matrix: usize,
        input: Slice,
        d_output: Slice,
        d_input: Slice,
        mode: WriteMode,
    ) -> Result<()> {
        let hidden = self.hidden();
        let blocks = self.builder.tokens.div_ceil(NORM_ROWS);
        let partial =
            self.builder.tensor("norm weight gradient partials", blocks as u64 * hidden as u64)?;
        let kernel =
            k::rms_norm_backward(self.builder.caps, hidden, self.config.rms_norm_eps, mode)?;
        let slices =
            vec![input, self.weight(matrix), d_output, d_input, partial, self.builder.step()];
        self.builder.dispatch(
            label,
            kernel,
            slices,
            12.0 * (self.builder.tokens * hidden) as f64,
        )?;
        let kernel = k::column_sum(self.builder.caps, hidden)?;
        let slices = vec![partial, self.part(matrix, 0, Buffer::Gradients), self.builder.step()];
        self.builder.dispatch(format!("{label} weight"), kernel, slices, (blocks * hidden) as f64)
    }

    pub fn embed(&mut self, tokens: Slice, output: Slice) -> Result<()> {
        let matrix = self.layout.embedding;
        let parts = self.layout.matrices[matrix].parts.clone();
        for (index, part) in parts.iter().enumerate() {
            let kernel = k::embedding_forward(self.builder.caps, self.hidden())?;
            let range =
                Range { col0: part.row0 as u32, cols: part.rows as u32, ..self.builder.all_rows() };
            let weight = self.part(matrix, index, Buffer::Weights);
            let slices =
                vec![tokens, weight, output, self.builder.step(), self.builder.range(range)];
            self.builder.dispatch_rows("embedding", kernel, slices, range, 0.0)?;
        }
        Ok(())
    }

    pub fn rope(
        &mut self,
        label: &str,
        qkv: Slice,
        documents: Slice,
        table: Slice,
        forward: bool,
    ) -> Result<()> {
        let shape = self.attention_shape();
        let heads = shape.heads + shape.kv_heads;
        let kernel = k::rope(self.builder.caps, heads, shape.head_dim, shape.stride(), forward)?;
        let flops = 3.0 * (self.builder.tokens * heads * shape.head_dim) as f64;
        self.builder.dispatch(
            label,
            kernel,
            vec![qkv, table, documents, self.builder.step()],
            flops,
        )
    }
}

fn product_flops(shape: &LinearShape) -> f64 {
    2.0 * shape.n as f64 * shape.k as f64 * shape.tokens as f64
}
