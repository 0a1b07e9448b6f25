//! Nodes of decoded rows, to dispatches: of each by itself, whatever was lowered before.

use super::{Lowering, Rows};
use crate::arch::{Attention, Norm, WeightId};
use crate::error::{Error, Result};
use crate::graph::{Gate, Node, Op, ValueId};
use crate::kernels::{
    self as k, Constant, DecodePlace, DecodeSplits, Kernel, MatvecInput, MatvecOutput,
    MatvecRowsShape, MatvecShape, NewestKey, NewestShape, Spec,
};
use crate::layout::{Cache, DecodeLayouts, DecodeNode, DecodeOp, Fusion};
use crate::plan::{Launch, Operand, Range, Slice};

impl Lowering<'_> {
    /// Gives the values of decoded rows their places.
    pub(super) fn place_decoded(&mut self, layouts: &DecodeLayouts) -> Result<()> {
        self.values.resize(layouts.values.len(), None);
        for &id in &layouts.tensors {
            let value = layouts.values[id];
            self.values[id] = Some(self.tensor(&value.to_string(), value.columns)?);
        }
        for id in 0..layouts.values.len() {
            self.values[id] = self.values[layouts.home(id)];
        }
        Ok(())
    }

    pub(super) fn decoded(&mut self, node: &DecodeNode) -> Result<()> {
        match node.op {
            DecodeOp::Plain(op) => self.plain(node, op),
            DecodeOp::EmbedAngles { weight, rope } => {
                let angles = [self.write_of(node, 1)?, self.rope_table(rope)];
                self.embed(&node.label(), weight, self.write_of(node, 0)?, Some(angles))
            }
            DecodeOp::NormLinear { norm, weight } => {
                let operands = [("norm_weight", self.whole(norm.weight))];
                let io = [self.read_of(node, 0)?, self.result_of(node)?];
                self.rows_of_matrix(
                    node,
                    weight,
                    (norm_input(norm), MatvecOutput::Plain),
                    io,
                    &operands,
                )
            }
            DecodeOp::NormLinearGate { norm, weight, gate } => {
                self.norm_linear_gate(node, norm, weight, gate)
            }
            DecodeOp::QkvAppend { norm, weight, bias, attention } => {
                self.qkv_append(node, norm, (weight, bias), attention)
            }
            DecodeOp::QkvAttentionDecode { shape, norm, weight, bias, attention, splits } => {
                let of = (norm, weight, bias);
                self.qkv_attention(node, shape, of, attention, splits)
            }
            DecodeOp::CacheAppend { attention } => self.cache_append(node, attention),
            DecodeOp::Attention { attention, splits } => self.attend(node, attention, splits),
            DecodeOp::MergeRanges { attention, splits } => {
                self.merge_ranges(node, attention, splits)
            }
            DecodeOp::MergingLinear { weight, bias, attention, splits, newest } => {
                let input = MatvecInput::Ranges(self.shape(attention), splits, newest);
                let (residual, newest) = match newest {
                    NewestKey::Among => (1, vec![]),
                    NewestKey::Apart => {
                        let cache = self.cache(node.site, attention, self.decode_cache()?)?;
                        (2, vec![("query", self.read_of(node, 1)?), ("cache", cache)])
                    }
                };
                self.linear_row(node, (weight, bias), input, (residual, newest))
            }
        }
    }

    fn plain(&mut self, node: &DecodeNode, op: Op) -> Result<()> {
        let label = node.label();
        match op {
            Op::Linear { weight, bias } => {
                self.linear_row(node, (weight, bias), MatvecInput::Plain, (1, vec![]))
            }
            Op::Norm(norm) => {
                let residual = node.reads.get(1).map(|&id| self.placed(id)).transpose()?;
                let io = [self.read_of(node, 0)?, self.write_of(node, 0)?];
                self.norm_rows(label, (norm, false), io, residual)
            }
            Op::Gate(gate) => {
                let io = [self.read_of(node, 0)?, self.write_of(node, 0)?];
                self.activate(label, (gate, false), io, None)
            }
            Op::Rope { attention } => self.rotate(label, attention, self.read_of(node, 0)?, true),
            _ => {
                let DecodeNode { reads, writes, site, .. } = node.clone();
                self.node(&Node { op, reads, writes, site }, &Fusion::None)
            }
        }
    }

    /// `output = matrix · input`, plus a bias and, from the read of this index on, a residual if there is one. For one row
    /// a bias is added like a residual, and a residual that lies where the output does is added to in place.
    fn linear_row(
        &mut self,
        node: &DecodeNode,
        (weight, bias): (WeightId, Option<WeightId>),
        input: MatvecInput,
        (residual, mut operands): (usize, Vec<Operand>),
    ) -> Result<()> {
        let io = [self.read_of(node, 0)?, self.result_of(node)?];
        let residual = node.reads.get(residual).map(|&id| self.placed(id)).transpose()?;
        let bias = bias.map(|bias| self.whole(bias));
        let (output, added) = match (residual, bias) {
            (None, None) => (MatvecOutput::Plain, vec![]),
            (Some(residual), None) if residual == io[1] => (MatvecOutput::Added, vec![]),
            (Some(residual), None) => (MatvecOutput::Residual, vec![("residual", residual)]),
            (None, Some(bias)) if self.is_batched() => (MatvecOutput::Bias, vec![("bias", bias)]),
            (None, Some(bias)) => (MatvecOutput::Residual, vec![("residual", bias)]),
            (Some(residual), Some(bias)) => {
                (MatvecOutput::BiasedResidual, vec![("residual", residual), ("bias", bias)])
            }
        };
        operands.extend(added);
        self.rows_of_matrix(node, weight, (input, output), io, &operands)
    }

    /// `activate(gate) · up` of the two halves of `matrix · norm(input)`.
    fn norm_linear_gate(
        &mut self,
        node: &DecodeNode,
        norm: Norm,
        weight: WeightId,
        gate: Gate,
    ) -> Result<()> {
        let shape = MatvecShape {
            n: gate.width,
            k: self.hidden(),
            first: 0,
            input: norm_input(norm),
            output: MatvecOutput::Gated(gate.activation),
            weights: self.matrices.format(weight),
        };
        let kernel = self.row_kernel(shape, gate.width)?;
        let launch = Launch::new(node.label(), kernel)
            .bind("a", self.read_of(node, 0)?)
            .bind_all([self.row_operand(weight, 0)])
            .bind("c", self.write_of(node, 0)?)
            .bind_some("range", self.part_columns(0, gate.width))
            .bind("norm_weight", self.whole(norm.weight));
        let flops = 4.0 * (self.builder.tokens * gate.width * self.hidden()) as f64;
        self.builder.dispatch(launch.flops(flops))
    }

    /// The newest rows' queries, rotated, at the beginning of a row, and their keys and values in the cache.
    fn qkv_append(
        &mut self,
        node: &DecodeNode,
        norm: Norm,
        (weight, bias): (WeightId, Option<WeightId>),
        attention: Attention,
    ) -> Result<()> {
        let shape = self.shape(attention);
        let batched = self.is_batched();
        let (stride, rotation) = if batched {
            (shape.stride(), ("table", self.angles(attention)?))
        } else {
            (shape.width(), ("angles", self.read_of(node, 1)?))
        };
        let matvec = MatvecShape {
            n: shape.stride() / 2,
            k: self.hidden(),
            first: 0,
            input: norm_input(norm),
            output: match bias {
                None => MatvecOutput::Heads(shape),
                Some(_) => MatvecOutput::BiasedHeads(shape),
            },
            weights: self.matrices.format(weight),
        };
        let cache = self.cache(node.site, attention, self.decode_cache()?)?;
        let launch = Launch::new(node.label(), self.row_kernel(matvec, stride)?)
            .bind("a", self.read_of(node, 0)?)
            .bind_all([self.row_operand(weight, 0), rotation])
            .bind("norm_weight", self.whole(norm.weight))
            .bind("cache", cache)
            .bind_some("bias", bias.map(|bias| self.whole(bias)))
            .bind("c", self.write_of(node, 0)?)
            .bind_some("documents", batched.then_some(self.inputs.documents));
        let flops = 2.0 * (self.builder.tokens * shape.stride() * self.hidden()) as f64;
        self.builder.dispatch(launch.flops(flops))
    }

    fn qkv_attention(
        &mut self,
        node: &DecodeNode,
        shape: NewestShape,
        (norm, weight, bias): (WeightId, WeightId, Option<WeightId>),
        attention: Attention,
        splits: DecodeSplits,
    ) -> Result<()> {
        let cache = self.decode_cache()?;
        let kernel = k::AttentionDecodeNewest { shape, splits }.kernel(self.builder.caps)?;
        let launch = Launch::new(node.label(), kernel)
            .bind("a", self.read_of(node, 0)?)
            .bind_all([self.row_operand(weight, 0)])
            .bind("norm_weight", self.whole(norm))
            .bind("angles", self.read_of(node, 1)?)
            .bind("cache", self.cache(node.site, attention, cache)?)
            .bind_some("bias", bias.map(|bias| self.whole(bias)))
            .bind("query", self.write_of(node, 0)?)
            .bind("partials", self.write_of(node, 1)?);
        let heads = shape.heads;
        let rows = heads.width() * splits.count + heads.cache_stride();
        let flops = self.attend_flops(attention, cache) + 2.0 * (rows * shape.k) as f64;
        self.builder.dispatch(launch.flops(flops))
    }

    fn cache_append(&mut self, node: &DecodeNode, attention: Attention) -> Result<()> {
        let (cache, qkv) = (self.decode_cache()?, self.read_of(node, 0)?);
        if self.is_batched() {
            let documents = self.inputs.documents;
            return self.append_rows(node.label(), (node.site, attention), cache, [qkv, documents]);
        }
        self.append(node.site, attention, cache, qkv).map(drop)
    }

    /// Attention of the newest rows, which begin with their queries, to the cache.
    fn attend(
        &mut self,
        node: &DecodeNode,
        attention: Attention,
        splits: DecodeSplits,
    ) -> Result<()> {
        let (cache, batched) = (self.decode_cache()?, self.is_batched());
        let (caps, shape) = (self.builder.caps, self.shape(attention));
        let place = self.decode_place(cache);
        let kernel = k::AttentionDecode { shape, place, splits }.kernel(caps)?;
        let launch = Launch::new(node.label(), kernel)
            .bind("query", self.read_of(node, 0)?)
            .bind("cache", self.cache(node.site, attention, cache)?)
            .bind_some("documents", batched.then_some(self.inputs.documents))
            .bind(if splits.count == 1 { "output" } else { "partials" }, self.write_of(node, 0)?);
        self.builder.dispatch(launch.flops(self.attend_flops(attention, cache)))
    }

    const fn decode_place(&self, cache: Cache) -> DecodePlace {
        if self.is_batched() {
            DecodePlace::Rows(cache.format, self.builder.tokens)
        } else {
            DecodePlace::Cache(cache.format)
        }
    }

    fn attend_flops(&self, attention: Attention, cache: Cache) -> f64 {
        4.0 * (self.builder.tokens * cache.rows * attention.width()) as f64
    }

    fn merge_ranges(
        &mut self,
        node: &DecodeNode,
        attention: Attention,
        splits: DecodeSplits,
    ) -> Result<()> {
        let (caps, shape, batched) = (self.builder.caps, self.shape(attention), self.is_batched());
        let place = self.decode_place(self.decode_cache()?);
        let kernel = k::AttentionDecodeMerge { shape, place, splits }.kernel(caps)?;
        let launch = Launch::new(node.label(), kernel)
            .bind("partials", self.read_of(node, 0)?)
            .bind_some("documents", batched.then_some(self.inputs.documents))
            .bind("output", self.write_of(node, 0)?);
        let elements = self.builder.tokens * splits.partials(&shape);
        self.builder.dispatch(launch.flops(2.0 * elements as f64))
    }

    /// A dispatch for each part of a matrix; `operands` are those besides the input, the matrix and the output.
    fn rows_of_matrix(
        &mut self,
        node: &DecodeNode,
        weight: WeightId,
        (input, output): (MatvecInput, MatvecOutput),
        [from, to]: [Slice; 2],
        operands: &[Operand],
    ) -> Result<()> {
        let matrix = self.params.matrices[weight].clone();
        let of_input = if matches!(input, MatvecInput::Ranges(..)) { "partials" } else { "a" };
        for (index, part) in matrix.parts.iter().enumerate() {
            let weights = self.matrices.format(weight);
            let (n, k, first) = (part.rows, matrix.cols, part.row0);
            let shape = MatvecShape { n, k, first, input, output, weights };
            let kernel = self.row_kernel(shape, matrix.rows)?;
            let launch = Launch::new(node.label(), kernel)
                .bind(of_input, from)
                .bind_all([self.row_operand(weight, index)])
                .bind("c", to)
                .bind_some("range", self.part_columns(first, n))
                .bind_all(operands.iter().copied());
            let flops = 2.0 * (self.builder.tokens * part.rows * matrix.cols) as f64;
            self.builder.dispatch(launch.flops(flops))?;
        }
        Ok(())
    }

    /// Which columns of their results a dispatch of batched rows has: of one row they are constants of its kernel.
    fn part_columns(&mut self, first: usize, count: usize) -> Option<Slice> {
        let (col0, cols) = (first as u32, count as u32);
        let range = Range { col0, cols, ..self.builder.all_rows() };
        self.is_batched().then(|| self.builder.range(range))
    }

    /// The kernel for one row, or for batched rows `stride` elements apart.
    fn row_kernel(&self, shape: MatvecShape, stride: usize) -> Result<Kernel> {
        if !self.is_batched() {
            return shape.kernel(self.builder.caps);
        }
        let MatvecShape { n, k, input, output, weights, .. } = shape;
        let rows = self.builder.tokens;
        let shape = MatvecRowsShape { n, k, rows, stride, input, output, weights };
        shape.kernel(self.builder.caps)
    }

    const fn is_batched(&self) -> bool {
        matches!(self.rows, Rows::Several { .. })
    }

    fn decode_cache(&self) -> Result<Cache> {
        match self.rows {
            Rows::One(cache) | Rows::Several { cache, .. } => Ok(cache),
            _ => Err(Error::internal("no decoded rows have a cache")),
        }
    }

    /// Where a value is.
    pub(super) fn placed(&self, value: ValueId) -> Result<Slice> {
        let place = self.values.get(value).copied().flatten();
        place.ok_or_else(|| Error::internal(format!("value {value} has no place")))
    }

    fn read_of(&self, node: &DecodeNode, index: usize) -> Result<Slice> {
        let value = node.reads.get(index).map(|&id| self.placed(id));
        value.unwrap_or_else(|| Err(Error::internal(format!("{} reads too little", node.label()))))
    }

    fn write_of(&self, node: &DecodeNode, index: usize) -> Result<Slice> {
        let value = node.writes.get(index).map(|&id| self.placed(id));
        value.unwrap_or_else(|| Err(Error::internal(format!("{} writes too little", node.label()))))
    }

    /// What a product writes: the head's rows are no value.
    fn result_of(&self, node: &DecodeNode) -> Result<Slice> {
        if node.writes.is_empty() { Ok(self.logits()) } else { self.write_of(node, 0) }
    }
}

fn norm_input(norm: Norm) -> MatvecInput {
    MatvecInput::Norm { epsilon: Constant(norm.epsilon) }
}
