//! Products of many rows with a matrix, and their gradients; how a matrix is read.

use super::{Lowering, label};
use crate::arch::WeightId;
use crate::error::{Error, Result};
use crate::graph::{Node, ValueId};
use crate::kernels::{
    self as k, Element, Form, LinearProduct, LinearShape, Output, SummedWeights, WeightFormat,
    WriteMode,
};
use crate::layout::{Fusion, GradientProduct, TokenRows};
use crate::plan::{Buffer, Launch, LowRankTerms, NamedSlice, Range, Slice};
use std::rc::Rc;

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

    pub fn operands(self) -> impl Iterator<Item = NamedSlice> {
        let residual = self.residual.map(|slice| ("residual", slice));
        residual.into_iter().chain(self.bias.map(|slice| ("bias", slice)))
    }
}

impl Lowering<'_> {
    pub(super) fn linear(
        &mut self,
        node: &Node,
        (weight, bias): (WeightId, Option<WeightId>),
        fusion: &Fusion,
    ) -> Result<()> {
        let (low, fusion) = fusion.of_product();
        if let Fusion::Gated(activation) = fusion {
            let graph = self.graph;
            return self.gated_product(node, &graph.nodes[*activation], weight);
        }
        let more = low.map(|low| self.low_rank_terms(low)).transpose()?;
        let input = self.read(node, 0)?;
        let residual = self.second(node)?;
        let bias = bias.map(|bias| self.whole(bias));
        let output = self.written(node, 0)?;
        let label = node.site.to_string();
        let rows = self.node_rows(node, weight);
        if *fusion == Fusion::LeavesSplitK {
            let of = (Form::MatmulT, weight, rows);
            return self.split_product(&label, of, input, node.writes[0], more);
        }
        let added = Added { residual, bias };
        let how = (added.output(), &*added.operands().collect::<Vec<_>>());
        let of = (Form::MatmulT, weight);
        self.adapted_products(&label, of, [input, output], how, (rows, more))
    }

    /// The partial sums of a product of `input` with a weight that is split along K.
    fn split_product(
        &mut self,
        label: &str,
        (form, weight, rows): (Form, WeightId, TokenRows),
        input: Slice,
        value: ValueId,
        more: Option<LowRankTerms>,
    ) -> Result<()> {
        let unsplit = || Error::internal(format!("{label} leaves no partial sums"));
        let split = self.layouts.split_k(value).ok_or_else(unsplit)?;
        let shape = self.matrices.product(form, weight, 0, rows);
        let (matrix, shape) = self.operand(weight, 0, shape);
        let cols = self.params.matrices[weight].rows as u32;
        let operands = [input, matrix, self.shared(split.slice)?];
        let (range, of) = (Range { cols, ..rows.rows }, (shape, split.sums.count));
        self.builder.product_in_parts(label, of, OVERWRITE, operands, range, more)
    }

    /// The rows of all tokens, without padding.
    pub(super) fn token_rows(&self, weight: WeightId) -> TokenRows {
        let stride = self.params.matrices[weight].rows;
        let result = Element::F32;
        TokenRows { rows: self.builder.all_rows(), stride, operands: [result; 2], result }
    }

    /// The rows that a node reads and writes.
    pub(super) fn node_rows(&self, node: &Node, weight: WeightId) -> TokenRows {
        self.layouts.product_rows(node, self.token_rows(weight))
    }

    /// The product of rows with each part of a weight, beside each other, or of their gradients, one added to the other.
    pub(super) fn products(
        &mut self,
        label: &str,
        (form, weight): (Form, WeightId),
        [from, to]: [Slice; 2],
        how: (Output, &[NamedSlice]),
        rows: TokenRows,
    ) -> Result<()> {
        self.adapted_products(label, (form, weight), [from, to], how, (rows, None))
    }

    /// [`Lowering::products`], whose sums may have an adapter's terms too: then the weight is one part.
    fn adapted_products(
        &mut self,
        label: &str,
        (form, weight): (Form, WeightId),
        [from, to]: [Slice; 2],
        (output, added): (Output, &[NamedSlice]),
        (rows, more): (TokenRows, Option<LowRankTerms>),
    ) -> Result<()> {
        let matrix = self.params.matrices[weight].clone();
        debug_assert!(
            rows.stride == matrix.rows || matches!(output, Output::Mode(_)),
            "{label}: a residual or a bias is added to rows without padding alone"
        );
        for (index, part) in matrix.parts.iter().enumerate() {
            let first = index == 0 || form == Form::MatmulT;
            let output = if first { output } else { Output::Mode(WriteMode::Add) };
            let range = Range { col0: part.row0 as u32, cols: part.rows as u32, ..rows.rows };
            let product = self.matrices.product(form, weight, index, rows);
            let (weights, product) = self.operand(weight, index, product);
            let operands = [from, weights, to];
            let product = LinearProduct::picked(self.builder.caps, product, output);
            self.builder.product_by(label, product, operands, added, (None, range), more)?;
        }
        Ok(())
    }

    pub(super) fn linear_input(
        &mut self,
        node: &Node,
        weight: WeightId,
        write: WriteMode,
        fusion: &Fusion,
    ) -> Result<()> {
        let (low, fusion) = fusion.of_product();
        let more = low.map(|low| self.low_rank_terms(low)).transpose()?;
        if let Fusion::GateGradient(activation) = fusion {
            let graph = self.graph;
            return self.gate_gradient(node, &graph.nodes[*activation], weight, more);
        }
        let rows = self.node_rows(node, weight);
        let label = label(node.site, "input");
        let d_output = self.read(node, 0)?;
        if *fusion == Fusion::LeavesSplitK {
            let of = (Form::Matmul, weight, rows);
            return self.split_product(&label, of, d_output, node.writes[0], more);
        }
        let operands = [d_output, self.written(node, 0)?];
        let how = (Output::Mode(write), &[][..]);
        self.adapted_products(&label, (Form::Matmul, weight), operands, how, (rows, more))
    }

    pub(super) fn linear_weight(
        &mut self,
        node: &Node,
        weight: WeightId,
        write: WriteMode,
        fusion: &Fusion,
    ) -> Result<()> {
        let operands = [self.read(node, 0)?, self.read(node, 1)?];
        let rows = self.node_rows(node, weight);
        let label = label(node.site, "weight");
        let mut products = weight_products(fusion).iter();
        self.weight_gradient(&label, weight, operands, (rows, write), &mut products)
    }

    /// `d_weight (+)= d_outputᵀ · input`, with the next of `products` for each part of the weight.
    pub(super) fn weight_gradient(
        &mut self,
        label: &str,
        weight: WeightId,
        [d_output, input]: [Slice; 2],
        (rows, write): (TokenRows, WriteMode),
        products: &mut std::slice::Iter<'_, GradientProduct>,
    ) -> Result<()> {
        let matrix = self.params.matrices[weight].clone();
        for (index, part) in matrix.parts.iter().enumerate() {
            let placed = products.next().copied().unwrap_or_default();
            if let Some(sums) = placed.sum_before {
                self.product_sum(sums)?;
            }
            let shape = self.matrices.product(Form::MatmulAt, weight, index, rows);
            let range = Range { col0: part.row0 as u32, cols: part.rows as u32, ..rows.rows };
            let output = Output::Mode(write);
            let Some(partials) = placed.partials else {
                let operands = [d_output, input, self.gradient(weight, index)];
                self.product(label, &shape, output, operands, &[], range)?;
                continue;
            };
            let operands = [d_output, input, self.shared(partials)?];
            let splits = k::linear_parts(self.builder.caps, &shape).count;
            let of = (shape, splits);
            self.builder.product_in_parts(label, of, output, operands, range, None)?;
        }
        Ok(())
    }

    /// Adds up the partial sums of several weights' gradients.
    pub(super) fn product_sum(&mut self, index: usize) -> Result<()> {
        let layouts = Rc::clone(&self.layouts);
        let sums = &layouts.product_sums[index];
        let kernel = self.builder.kernel(sums.bound_sums())?;
        let launch = Launch::new(&sums.label, kernel)
            .bind("parts", sums.partials)
            .bind("gradient", sums.gradients);
        self.builder.dispatch(launch.flops(sums.partials.bytes as f64 / 4.0))
    }

    /// `d_bias (+)= Σ over rows of d_output`.
    pub(super) fn bias_gradient(&mut self, node: &Node, bias: WeightId) -> Result<()> {
        let columns = self.params.matrices[bias].rows;
        let kernel = self.builder.kernel(k::ColumnSum {
            hidden: columns,
            rows: 1,
            weights: SummedWeights::ONE,
        })?;
        let launch = Launch::new(label(node.site, "bias"), kernel)
            .bind("partial_sums", self.read(node, 0)?)
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
        added: &[NamedSlice],
        range: Range,
    ) -> Result<()> {
        self.builder.product(label, shape, output, operands, added, (None, range))
    }

    /// Operand B of a product of tokens with a part of a matrix, and the product as it reads that.
    pub(super) fn operand(
        &self,
        weight: WeightId,
        part: usize,
        shape: LinearShape,
    ) -> (Slice, LinearShape) {
        let shape = self.matrices.read(weight, shape);
        let matrix = &self.params.matrices[weight];
        if self.matrices.mixed && matrix.format == WeightFormat::F32 && shape.b == WeightFormat::F16
        {
            let Slice { offset, bytes, .. } = self.part(weight, part, Buffer::Mirror);
            let mirror = Buffer::Mirror(matrix.parts[part].shard);
            return (Slice::new(mirror, offset / 2, bytes / 2), shape);
        }
        (self.row_operand(weight, part).1, shape)
    }

    /// A part of a matrix: packed where its rows are.
    pub(super) fn row_operand(&self, weight: WeightId, part: usize) -> NamedSlice {
        match self.matrices.packed(weight, part) {
            Some(packed) => ("packed", packed),
            None => ("b", self.part(weight, part, Buffer::Weights)),
        }
    }

    /// Writes [`Buffer::Mirror`] from the weights.
    pub(super) fn round_weights(&mut self) -> Result<()> {
        for (index, shard) in self.params.shards.iter().enumerate() {
            let kernel = self.builder.kernel(k::PackWeights {
                format: WeightFormat::F16,
                rows: 1,
                columns: shard.len,
            })?;
            let launch = Launch::new("weights in f16", kernel)
                .bind("matrix", Slice::new(Buffer::Weights(index), 0, shard.len as u64 * 4))
                .bind("packed", Slice::new(Buffer::Mirror(index), 0, shard.len as u64 * 2));
            self.builder.dispatch(launch.flops(shard.len as f64))?;
        }
        Ok(())
    }
}

/// How a node's products of a weight's gradient are joined with others.
pub(super) fn weight_products(fusion: &Fusion) -> &[GradientProduct] {
    match fusion {
        Fusion::WeightGradient(products) => products,
        _ => &[],
    }
}
