//! Model-shaped stretches of a plan: linear layers and norms with their gradients, embedding, RoPE.

use super::builder::Builder;
use super::{Buffer, Range, Slice};
use crate::config::ModelConfig;
use crate::error::Result;
use crate::kernels::{
    self as k, ActivationWidth, AttentionShape, Form, LinearShape, Output, WeightFormat, WriteMode,
};
use crate::layout::{Layout, Matrix};

/// Builds model-shaped stretches of a plan.
pub(super) struct Model<'a> {
    pub config: &'a ModelConfig,
    pub layout: &'a Layout,
    pub builder: Builder<'a>,
    /// How matrices are read.
    pub weights: WeightFormat,
    /// Products read matrices from [`Buffer::Mirror`], where their rows are of vectors.
    pub mirrored: bool,
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

    /// A part of a matrix packed, where its rows are.
    pub fn packed(&self, matrix: usize, part: usize) -> Option<Slice> {
        let Matrix { cols, parts, .. } = &self.layout.matrices[matrix];
        self.weights.packs(*cols).then(|| {
            let buffer = Buffer::Packed(self.layout.part_number(matrix, part));
            Slice::new(buffer, 0, self.weights.bytes(parts[part].rows, *cols))
        })
    }

    /// A part of a matrix as the products of one row read it: packed where its rows are.
    pub fn row_operand(&self, matrix: usize, part: usize) -> Slice {
        self.packed(matrix, part).unwrap_or_else(|| self.part(matrix, part, Buffer::Weights))
    }

    /// A part of a matrix in f32: as it is or, where it is packed, what that stands for.
    fn unpacked(&mut self, label: &str, matrix: usize, part: usize) -> Result<Slice> {
        let Some(packed) = self.packed(matrix, part) else {
            return Ok(self.part(matrix, part, Buffer::Weights));
        };
        let (rows, cols) =
            (self.layout.matrices[matrix].parts[part].rows, self.layout.matrices[matrix].cols);
        let unpacked =
            self.builder.tensor(&format!("unpacked matrix of {label}"), (rows * cols) as u64)?;
        let kernel = k::unpack_weights(self.builder.caps, self.weights, rows, cols)?;
        let slices = vec![unpacked, packed];
        self.builder.dispatch(format!("{label} unpacked"), kernel, slices, 0.0)?;
        Ok(unpacked)
    }

    /// Operand B of a product of tokens with a part of a matrix, and the product as it reads that.
    fn operand(
        &mut self,
        label: &str,
        matrix: usize,
        part: usize,
        shape: LinearShape,
    ) -> Result<(Slice, LinearShape)> {
        if self.mirrored && shape.by_vectors() {
            let Slice { offset, bytes, .. } = self.part(matrix, part, Buffer::Mirror);
            let shard = self.layout.matrices[matrix].parts[part].shard;
            let mirror = Slice::new(Buffer::Mirror(shard), offset / 2, bytes / 2);
            return Ok((mirror, LinearShape { half_b: true, ..shape }));
        }
        Ok((self.unpacked(label, matrix, part)?, shape))
    }

    /// Writes [`Buffer::Mirror`] from the weights.
    pub fn mirror_weights(&mut self) -> Result<()> {
        for (index, shard) in self.layout.shards.iter().enumerate() {
            let kernel = k::pack_weights(self.builder.caps, WeightFormat::F16, 1, shard.len)?;
            let slices = vec![
                Slice::new(Buffer::Weights(index), 0, shard.len as u64 * 4),
                Slice::new(Buffer::Mirror(index), 0, shard.len as u64 * 2),
            ];
            self.builder.dispatch("weights in f16", kernel, slices, shard.len as f64)?;
        }
        Ok(())
    }

    pub fn weight(&self, matrix: usize) -> Slice {
        self.part(matrix, 0, Buffer::Weights)
    }

    pub fn tensor(&mut self, what: &str, columns: usize) -> Result<Slice> {
        self.builder.tensor(what, self.builder.tokens as u64 * columns as u64)
    }

    /// One product of `operands` a and b into c, in two dispatches if K is split.
    fn product(
        &mut self,
        label: &str,
        shape: &LinearShape,
        output: Output,
        [a, b, c]: [Slice; 3],
        residual: Option<Slice>,
        range: Range,
    ) -> Result<()> {
        self.builder.note_product(*shape);
        let linear = k::linear(self.builder.caps, shape, output)?;
        let (step, columns) = (self.builder.step(), self.builder.range(range));
        let flops = product_flops(shape);
        let Some(sum) = linear.sum else {
            let mut slices = vec![a, b, c, step, columns];
            slices.extend(residual);
            return self.builder.dispatch_rows(label, linear.product, slices, range, flops);
        };
        let parts = self.builder.tensor("parts of a product", sum.elements)?;
        let slices = vec![a, b, parts, step, columns];
        self.builder.dispatch_rows(label, linear.product, slices, range, flops)?;
        let mut slices = vec![parts, c, step, columns];
        slices.extend(residual);
        let label = format!("{label} sum");
        self.builder.dispatch_rows(label, sum.kernel, slices, range, sum.elements as f64)
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
                half_b: false,
            };
            let mode = if residual.is_some() {
                Output::Residual
            } else {
                Output::Mode(WriteMode::Overwrite)
            };
            let range = Range { col0: part.row0 as u32, cols: part.rows as u32, ..rows };
            let (weights, product) = self.operand(label, matrix, index, product)?;
            let operands = [input, weights, output];
            self.product(label, &product, mode, operands, residual, range)?;
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
                half_b: false,
            };
            let mode = if index == 0 { WriteMode::Overwrite } else { WriteMode::Add };
            let range = Range { col0: part.row0 as u32, cols: part.rows as u32, ..rows };
            let (weights, product) = self.operand(label, matrix, index, product)?;
            let operands = [d_output, weights, d_input];
            self.product(label, &product, Output::Mode(mode), operands, None, range)?;
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
                half_b: false,
            };
            let range = Range { col0: part.row0 as u32, cols: part.rows as u32, ..rows };
            let operands = [d_output, input, self.part(matrix, index, Buffer::Gradients)];
            self.product(label, &product, Output::Mode(mode), operands, None, range)?;
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
        let rows = k::norm_rows(self.builder.caps, self.builder.tokens);
        let blocks = self.builder.tokens.div_ceil(rows);
        let partial =
            self.builder.tensor("norm weight gradient partials", blocks as u64 * hidden as u64)?;
        let kernel =
            k::rms_norm_backward(self.builder.caps, hidden, self.config.rms_norm_eps, mode, rows)?;
        let slices =
            vec![input, self.weight(matrix), d_output, d_input, partial, self.builder.step()];
        self.builder.dispatch(
            label,
            kernel,
            slices,
            12.0 * (self.builder.tokens * hidden) as f64,
        )?;
        let kernel = k::column_sum(self.builder.caps, hidden, rows)?;
        let slices = vec![partial, self.part(matrix, 0, Buffer::Gradients), self.builder.step()];
        self.builder.dispatch(format!("{label} weight"), kernel, slices, (blocks * hidden) as f64)
    }

    /// `activate(gate) · up` of rows `gate | up`.
    pub fn activate(&mut self, label: &str, gate_up: Slice) -> Result<Slice> {
        let feed = self.config.intermediate_size;
        let output = self.tensor("activation", feed)?;
        let kernel = k::gated_activation(self.builder.caps, self.activation())?;
        let flops = 8.0 * (self.builder.tokens * feed) as f64;
        let slices = vec![gate_up, output, self.builder.step()];
        self.builder.dispatch(label, kernel, slices, flops)?;
        Ok(output)
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
