//! Products of many rows with a matrix, and their gradients; how a matrix is read.

use super::Lowering;
use crate::arch::WeightId;
use crate::error::Result;
use crate::graph::{Node, ValueId};
use crate::kernels::{
    self as k, Element, Form, LinearShape, Output, SummedWeights, WeightFormat, WriteMode,
};
use crate::layout::Matrices;
use crate::plan::{Buffer, Launch, Operand, Range, Slice};

/// Rows of tokens, with a column for each row of a matrix.
#[derive(Clone, Copy)]
pub(super) struct TokenRows {
    pub rows: Range,
    /// Elements from one row to the next; those past the matrix's rows are padding.
    pub stride: usize,
    /// How the first operand lies, and in a product of two activations the second.
    pub operands: [Element; 2],
    /// How the result lies.
    pub result: Element,
}

/// A product of which nothing is kept but itself.
pub(super) const OVERWRITE: Output = Output::Mode(WriteMode::Overwrite);

/// What is added to a product.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Added {
    pub residual: Option<Slice>,
    pub bias: Option<Slice>,
}

impl Added {
    pub fn output(self) -> Output {
        match (self.residual, self.bias) {
            (None, None) => OVERWRITE,
            (Some(_), None) => Output::Residual,
            (None, Some(_)) => Output::Bias,
            (Some(_), Some(_)) => Output::BiasedResidual,
        }
    }

    fn operands(self) -> impl Iterator<Item = Operand> {
        let residual = self.residual.map(|slice| ("residual", slice));
        residual.into_iter().chain(self.bias.map(|slice| ("bias", slice)))
    }
}

impl Lowering<'_> {
    pub(super) fn linear(
        &mut self,
        node: &Node,
        weight: WeightId,
        bias: Option<WeightId>,
    ) -> Result<()> {
        let input = self.read(node, 0);
        let residual = (node.reads.len() > 1).then(|| self.read(node, 1));
        let bias = bias.map(|bias| self.whole(bias));
        let added = Added { residual, bias };
        let label = node.site.to_string();
        let summed = self.sums_behind(node, added.output());
        let output = self.written(node, 0)?;
        let token_rows = self.node_rows(node, weight);
        if summed {
            let product = (weight, self.row_product(weight, 0, token_rows), token_rows);
            if self.left_in_parts(&label, product, (input, residual), node.writes[0])? {
                return Ok(());
            }
        }
        self.product_rows(&label, weight, [input, output], added, token_rows)
    }

    /// The rows of all tokens, without padding.
    pub(super) fn token_rows(&self, weight: WeightId) -> TokenRows {
        let stride = self.params.matrices[weight].rows;
        let result = Element::F32;
        TokenRows { rows: self.builder.all_rows(), stride, operands: [result; 2], result }
    }

    /// The same of what a node reads.
    fn node_rows(&self, node: &Node, weight: WeightId) -> TokenRows {
        let lies = |value: Option<&ValueId>| {
            Element::halved(value.is_some_and(|&value| self.in_halves(value)))
        };
        let operands = [0, 1].map(|index| lies(node.reads.get(index)));
        TokenRows { operands, result: lies(node.writes.first()), ..self.token_rows(weight) }
    }

    /// `output = input · weightᵀ`, plus what is added.
    pub(super) fn product_rows(
        &mut self,
        label: &str,
        weight: WeightId,
        [input, output]: [Slice; 2],
        added: Added,
        token_rows: TokenRows,
    ) -> Result<()> {
        let matrix = self.params.matrices[weight].clone();
        let mode = added.output();
        debug_assert!(
            token_rows.stride == matrix.rows || mode == OVERWRITE,
            "{label}: a residual or a bias is added to rows without padding alone"
        );
        let added: Vec<_> = added.operands().collect();
        for (index, part) in matrix.parts.iter().enumerate() {
            let product = self.row_product(weight, index, token_rows);
            let rows = token_rows.rows;
            let range = Range { col0: part.row0 as u32, cols: part.rows as u32, ..rows };
            let (weights, product) = self.operand(label, weight, index, product)?;
            let operands = [input, weights, output];
            self.product(label, &product, mode, operands, &added, range)?;
        }
        Ok(())
    }

    /// The product of rows with a part of a weight, which is read in f32.
    fn row_product(
        &self,
        weight: WeightId,
        part: usize,
        TokenRows { rows, stride, operands, result }: TokenRows,
    ) -> LinearShape {
        let matrix = &self.params.matrices[weight];
        LinearShape {
            form: Form::MatmulT,
            n: matrix.parts[part].rows,
            k: matrix.cols,
            a_stride: matrix.cols,
            c_stride: stride,
            tokens: rows.rows as usize,
            padded: stride > matrix.rows,
            a: operands[0],
            c: result,
            b: WeightFormat::F32,
            half: self.mirrored,
        }
    }

    pub(super) fn linear_input(
        &mut self,
        node: &Node,
        weight: WeightId,
        write: WriteMode,
    ) -> Result<()> {
        let token_rows = self.node_rows(node, weight);
        let label = super::label(node.site, "input");
        if self.gate_gradient(&label, node, weight, token_rows)? {
            return Ok(());
        }
        let d_output = self.read(node, 0);
        if self.sums_before(node) {
            let product = (weight, self.input_product(weight, 0, token_rows), token_rows);
            if self.left_in_parts(&label, product, (d_output, None), node.writes[0])? {
                return Ok(());
            }
        }
        let d_input = self.written(node, 0)?;
        self.input_gradient(&label, weight, [d_output, d_input], token_rows, write)
    }

    /// `d_input (+)= d_output · weight`.
    pub(super) fn input_gradient(
        &mut self,
        label: &str,
        weight: WeightId,
        [d_output, d_input]: [Slice; 2],
        token_rows: TokenRows,
        write: WriteMode,
    ) -> Result<()> {
        let matrix = self.params.matrices[weight].clone();
        let rows = token_rows.rows;
        for (index, part) in matrix.parts.iter().enumerate() {
            let product = self.input_product(weight, index, token_rows);
            let mode = if index == 0 { write } else { WriteMode::Add };
            let range = Range { col0: part.row0 as u32, cols: part.rows as u32, ..rows };
            let (weights, product) = self.operand(label, weight, index, product)?;
            let operands = [d_output, weights, d_input];
            self.product(label, &product, Output::Mode(mode), operands, &[], range)?;
        }
        Ok(())
    }

    /// The product of the gradients of rows with a part of a weight, which is read in f32.
    pub(super) fn input_product(
        &self,
        weight: WeightId,
        part: usize,
        TokenRows { rows, stride, operands, result }: TokenRows,
    ) -> LinearShape {
        let matrix = &self.params.matrices[weight];
        LinearShape {
            form: Form::Matmul,
            n: matrix.cols,
            k: matrix.parts[part].rows,
            a_stride: stride,
            c_stride: matrix.cols,
            tokens: rows.rows as usize,
            padded: stride > matrix.rows,
            a: operands[0],
            c: result,
            b: WeightFormat::F32,
            half: self.mirrored,
        }
    }

    pub(super) fn linear_weight(
        &mut self,
        node: &Node,
        weight: WeightId,
        write: WriteMode,
    ) -> Result<()> {
        let operands = [self.read(node, 0), self.read(node, 1)];
        let token_rows = self.node_rows(node, weight);
        let label = super::label(node.site, "weight");
        self.weight_gradient(&label, weight, operands, token_rows, write)
    }

    /// `d_weight (+)= d_outputᵀ · input`.
    pub(super) fn weight_gradient(
        &mut self,
        label: &str,
        weight: WeightId,
        [d_output, input]: [Slice; 2],
        TokenRows { rows, stride, operands: lie, result }: TokenRows,
        write: WriteMode,
    ) -> Result<()> {
        let matrix = self.params.matrices[weight].clone();
        for (index, part) in matrix.parts.iter().enumerate() {
            let product = LinearShape {
                form: Form::MatmulAt,
                n: matrix.cols,
                k: part.rows,
                a_stride: stride,
                c_stride: matrix.cols,
                tokens: rows.rows as usize,
                padded: stride > matrix.rows,
                a: lie[0],
                c: result,
                b: if lie[1] == Element::F16 { WeightFormat::F16 } else { WeightFormat::F32 },
                half: self.mirrored,
            };
            let range = Range { col0: part.row0 as u32, cols: part.rows as u32, ..rows };
            let gradient = self.gradient(weight, index);
            if !self.gradient_waits(label, &product, [d_output, input, gradient], (write, range))? {
                let operands = [d_output, input, gradient];
                self.product(label, &product, Output::Mode(write), operands, &[], range)?;
            }
        }
        Ok(())
    }

    /// `d_bias (+)= Σ over rows of d_output`.
    pub(super) fn bias_gradient(&mut self, node: &Node, bias: WeightId) -> Result<()> {
        let columns = self.params.matrices[bias].rows;
        let kernel = k::column_sum(self.builder.caps, columns, 1, SummedWeights::ONE)?;
        let launch = Launch::new(super::label(node.site, "bias"), kernel)
            .bind("partial_sums", self.read(node, 0))
            .bind("output", self.gradient(bias, 0));
        self.builder.dispatch(launch.flops((self.builder.tokens * columns) as f64))
    }

    /// One product of `operands` a and b into c, in two dispatches if K is split.
    pub(super) fn product(
        &mut self,
        label: &str,
        shape: &LinearShape,
        output: Output,
        operands: [Slice; 3],
        added: &[Operand],
        range: Range,
    ) -> Result<()> {
        let step = self.builder.step();
        self.builder.product(label, shape, output, operands, added, (step, range))
    }

    /// Operand B of a product of tokens with a part of a matrix, and the product as it reads that.
    pub(super) fn operand(
        &mut self,
        label: &str,
        weight: WeightId,
        part: usize,
        shape: LinearShape,
    ) -> Result<(Slice, LinearShape)> {
        let held = self.params.matrices[weight].format;
        if held != WeightFormat::F32 {
            let (_, matrix) = self.row_operand(weight, part);
            return Ok((matrix, LinearShape { b: held, ..shape }));
        }
        if self.mirrored && shape.by_vectors() {
            let Slice { offset, bytes, .. } = self.part(weight, part, Buffer::Mirror);
            let shard = self.params.matrices[weight].parts[part].shard;
            let mirror = Slice::new(Buffer::Mirror(shard), offset / 2, bytes / 2);
            return Ok((mirror, LinearShape { b: WeightFormat::F16, ..shape }));
        }
        Ok((self.unpacked(label, weight, part)?, shape))
    }

    /// A part of a matrix in f32: as it is or, where it is packed, what that stands for.
    fn unpacked(&mut self, label: &str, weight: WeightId, part: usize) -> Result<Slice> {
        let Some(packed) = self.packed(weight, part) else {
            return Ok(self.part(weight, part, Buffer::Weights));
        };
        let matrix = &self.params.matrices[weight];
        let (rows, columns) = (matrix.parts[part].rows, matrix.cols);
        let what = format!("unpacked matrix of {label}");
        let unpacked = self.builder.tensor(&what, (rows * columns) as u64)?;
        let kernel = k::unpack_weights(self.builder.caps, self.weights, rows, columns)?;
        let launch = Launch::new(format!("{label} unpacked"), kernel);
        self.builder.dispatch(launch.bind("matrix", unpacked).bind("packed", packed))?;
        Ok(unpacked)
    }

    /// A part of a matrix packed, where its rows are.
    pub(super) fn packed(&self, weight: WeightId, part: usize) -> Option<Slice> {
        let (matrix, format) = (&self.params.matrices[weight], self.format(weight));
        format.packs(matrix.cols).then(|| {
            let (number, offset) = match self.params.weights {
                WeightFormat::F32 => self.params.packed_part(format, weight, part),
                _ => (matrix.first_part + part, 0),
            };
            let bytes = format.bytes(matrix.parts[part].rows, matrix.cols);
            Slice::new(Buffer::Packed(number), offset, bytes)
        })
    }

    /// How a matrix is read.
    pub(super) fn format(&self, weight: WeightId) -> WeightFormat {
        Matrices { params: self.params, weights: self.weights }.format(weight)
    }

    /// A part of a matrix as the products of one row read it: packed where its rows are.
    pub(super) fn row_operand(&self, weight: WeightId, part: usize) -> Operand {
        match self.packed(weight, part) {
            Some(packed) => ("packed", packed),
            None => ("b", self.part(weight, part, Buffer::Weights)),
        }
    }

    /// Writes [`Buffer::Mirror`] from the weights.
    pub(super) fn mirror_weights(&mut self) -> Result<()> {
        for (index, shard) in self.params.shards.iter().enumerate() {
            let kernel = k::pack_weights(self.builder.caps, WeightFormat::F16, 1, shard.len)?;
            let launch = Launch::new("weights in f16", kernel)
                .bind("matrix", Slice::new(Buffer::Weights(index), 0, shard.len as u64 * 4))
                .bind("packed", Slice::new(Buffer::Mirror(index), 0, shard.len as u64 * 2));
            self.builder.dispatch(launch.flops(shard.len as f64))?;
        }
        Ok(())
    }
}
