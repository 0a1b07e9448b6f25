//! Nodes of decoded rows, to dispatches: of each by itself, whatever was lowered before.

use crate::arch::{Attention, Norm, WeightId};
use crate::error::{Error, Result};
use crate::graph::{Node, Op};
use crate::kernels::{
    self as k, Constant, DecodeOver, DecodeQkvShape, DecodeSplits, Kernel, Matvec, MatvecInput,
    MatvecOutput, MatvecRows, NewKey, NormForm, Output,
};
use crate::layout::{CacheLayout, DecodeLayouts, DecodeNode, DecodeOp, Fusion};
use crate::lower::linear::Added;
use crate::lower::{Lowering, PassRows};
use crate::plan::{Launch, NamedSlice, Range, Slice};
use std::rc::Rc;

impl Lowering<'_> {
    /// Gives the values of decoded rows their places.
    pub(in crate::lower) fn place_decoded(&mut self, layouts: &DecodeLayouts) -> Result<()> {
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

    pub(in crate::lower) fn decoded(&mut self, node: &DecodeNode) -> Result<()> {
        match node.op {
            DecodeOp::Plain(op) => self.plain(node, op),
            DecodeOp::EmbedAngles { weight, rope } => {
                let angles = [self.written(node, 1)?, self.rope_table(rope)];
                self.embed(node.site, weight, self.written(node, 0)?, Some(angles))
            }
            DecodeOp::NormLinear { norm, weight } => {
                self.norm_linear(node, norm, (weight, MatvecOutput::Plain), &[])
            }
            DecodeOp::NormLinearGate { norm, weight, mlp } => {
                self.norm_linear(node, norm, (weight, MatvecOutput::Gated(mlp.activation)), &[])
            }
            DecodeOp::QkvAppend { norm, weight, bias, attention } => {
                self.qkv_append(node, norm, (weight, bias), attention)
            }
            DecodeOp::QkvAttentionDecode { shape, norm, weight, bias, attention, splits } => {
                let of = (norm, weight, bias);
                self.qkv_attention(node, shape, of, attention, splits)
            }
            DecodeOp::CacheAppend { attention } => {
                let (cache, qkv) = (self.decode_cache()?, self.read(node, 0)?);
                let documents = self.is_batched().then_some(self.inputs.documents);
                self.append(node.site, attention, cache, (qkv, documents)).map(drop)
            }
            DecodeOp::Attention { attention, splits } => self.attend(node, attention, splits),
            DecodeOp::MergePartials { attention, splits } => {
                self.merge_partials(node, attention, splits)
            }
            DecodeOp::MergingLinear { weight, bias, attention, splits, newest } => {
                let input = MatvecInput::PartialSoftmax(self.cached(attention), splits, newest);
                let (residual, newest) = match newest {
                    NewKey::Among => (1, vec![]),
                    NewKey::Apart => {
                        let cache = self.cache(node.site, attention, self.decode_cache()?)?;
                        (2, vec![("query", self.read(node, 1)?), ("cache", cache)])
                    }
                };
                self.linear_row(node, (weight, bias), input, (residual, newest))
            }
        }
    }

    fn plain(&mut self, node: &DecodeNode, op: Op) -> Result<()> {
        match op {
            Op::Linear { weight, bias } => {
                self.linear_row(node, (weight, bias), MatvecInput::Plain, (1, vec![]))
            }
            Op::Norm(norm) => {
                let residual = self.second(node)?.map(|residual| ("residual", residual));
                let form = NormForm { residual: residual.is_some(), ..NormForm::PLAIN };
                let io = [self.read(node, 0)?, self.written(node, 0)?];
                self.norm_rows(node.site, norm, form, io, residual.as_slice())
            }
            Op::Activation(mlp) => {
                let io = [self.read(node, 0)?, self.written(node, 0)?];
                self.activate(node.site, (mlp, false), io, None)
            }
            Op::Rope { attention } => {
                let rows = [("qkv", self.read(node, 0)?)];
                self.rotate(node.site, attention, self.rotation(attention, true), &rows)
            }
            _ => {
                let DecodeNode { reads, writes, site, .. } = node.clone();
                self.node(&Node { op, reads, writes, site }, &Fusion::None)
            }
        }
    }

    /// `output = matrix · input`, plus a bias and, from the read of this index on, a residual if there is one. A
    /// residual in the output's place is added to in place.
    fn linear_row(
        &mut self,
        node: &DecodeNode,
        (weight, bias): (WeightId, Option<WeightId>),
        input: MatvecInput,
        (residual, mut operands): (usize, Vec<NamedSlice>),
    ) -> Result<()> {
        let residual = node.reads.get(residual).map(|&id| self.place(id)).transpose()?;
        let added = Added { residual, bias: bias.map(|bias| self.whole(bias)) };
        let output = match added.output() {
            Output::Residual if residual == Some(self.result_of(node)?) => MatvecOutput::Added,
            Output::Residual => MatvecOutput::Residual,
            Output::Bias => MatvecOutput::Bias,
            Output::BiasedResidual => MatvecOutput::BiasedResidual,
            Output::Mode(_) | Output::GateGradient(_) | Output::Gated(_) => MatvecOutput::Plain,
        };
        if output != MatvecOutput::Added {
            operands.extend(added.operands());
        }
        self.rows_of_matrix(node, weight, (input, output), &operands)
    }

    fn norm_linear(
        &mut self,
        node: &DecodeNode,
        norm: Norm,
        (weight, output): (WeightId, MatvecOutput),
        operands: &[NamedSlice],
    ) -> Result<()> {
        let operands = [operands, &[("norm_weight", self.whole(norm.weight))]].concat();
        let input = MatvecInput::Norm { epsilon: Constant(norm.epsilon) };
        self.rows_of_matrix(node, weight, (input, output), &operands)
    }

    /// The newest rows' queries, rotated, at the beginning of a row, and their keys and values in the cache.
    fn qkv_append(
        &mut self,
        node: &DecodeNode,
        norm: Norm,
        (weight, bias): (WeightId, Option<WeightId>),
        attention: Attention,
    ) -> Result<()> {
        let cache = self.cache(node.site, attention, self.decode_cache()?)?;
        let mut operands = vec![("cache", cache)];
        if self.is_batched() {
            let table = ("table", self.angles(attention)?);
            operands.extend([table, ("documents", self.inputs.documents)]);
        } else {
            operands.push(("angles", self.read(node, 1)?));
        }
        operands.extend(bias.map(|bias| ("bias", self.whole(bias))));
        let heads = if bias.is_some() { MatvecOutput::BiasedHeads } else { MatvecOutput::Heads };
        self.norm_linear(node, norm, (weight, heads(self.cached(attention).cache())), &operands)
    }

    fn qkv_attention(
        &mut self,
        node: &DecodeNode,
        shape: DecodeQkvShape,
        (norm, weight, bias): (WeightId, WeightId, Option<WeightId>),
        attention: Attention,
        splits: DecodeSplits,
    ) -> Result<()> {
        let cache = self.decode_cache()?;
        let kernel = self.builder.kernel(k::AttentionDecodeQkv { shape, splits })?;
        let launch = Launch::new(node.site, kernel)
            .bind("a", self.read(node, 0)?)
            .bind_all([self.row_operand(weight, 0)])
            .bind("norm_weight", self.whole(norm))
            .bind("angles", self.read(node, 1)?)
            .bind("cache", self.cache(node.site, attention, cache)?)
            .bind_some("bias", bias.map(|bias| self.whole(bias)))
            .bind("query", self.written(node, 0)?)
            .bind("partials", self.written(node, 1)?);
        let heads = shape.heads.shape;
        let rows = heads.width() * splits.count + heads.cache_stride();
        let flops = self.attend_flops(attention, cache) + 2.0 * (rows * shape.k) as f64;
        self.builder.dispatch(launch.flops(flops))
    }

    /// Attention of the newest rows, which begin with their queries, to the cache.
    fn attend(
        &mut self,
        node: &DecodeNode,
        attention: Attention,
        splits: DecodeSplits,
    ) -> Result<()> {
        let (cache, batched) = (self.decode_cache()?, self.is_batched());
        let over = self.decode_over(attention, cache);
        let kernel = self.builder.kernel(k::AttentionDecode { over, splits })?;
        let launch = Launch::new(node.site, kernel)
            .bind("query", self.read(node, 0)?)
            .bind("cache", self.cache(node.site, attention, cache)?)
            .bind_some("documents", batched.then_some(self.inputs.documents))
            .bind(if splits.count == 1 { "output" } else { "partials" }, self.written(node, 0)?);
        self.builder.dispatch(launch.flops(self.attend_flops(attention, cache)))
    }

    fn decode_over(&self, attention: Attention, cache: CacheLayout) -> DecodeOver {
        let attention = self.cached(attention);
        if self.is_batched() {
            DecodeOver::Rows(attention, cache.format, self.builder.tokens)
        } else {
            DecodeOver::Cache(attention, cache.format)
        }
    }

    fn attend_flops(&self, attention: Attention, cache: CacheLayout) -> f64 {
        4.0 * (self.builder.tokens * cache.rows * attention.width()) as f64
    }

    fn merge_partials(
        &mut self,
        node: &DecodeNode,
        attention: Attention,
        splits: DecodeSplits,
    ) -> Result<()> {
        let (batched, over) =
            (self.is_batched(), self.decode_over(attention, self.decode_cache()?));
        let of = over.partials();
        let kernel = self.builder.kernel(k::AttentionDecodeMerge { of, splits })?;
        let launch = Launch::new(node.site, kernel)
            .bind("partials", self.read(node, 0)?)
            .bind_some("documents", batched.then_some(self.inputs.documents))
            .bind("output", self.written(node, 0)?);
        let elements = self.builder.tokens * splits.partials(&over.shape());
        self.builder.dispatch(launch.flops(2.0 * elements as f64))
    }

    /// A dispatch for each part of a matrix; `operands` are those besides the input, the matrix and the output.
    fn rows_of_matrix(
        &mut self,
        node: &DecodeNode,
        weight: WeightId,
        (input, output): (MatvecInput, MatvecOutput),
        operands: &[NamedSlice],
    ) -> Result<()> {
        let [from, to] = [self.read(node, 0)?, self.result_of(node)?];
        let matrix = self.params.matrices[weight].clone();
        let of_input =
            if matches!(input, MatvecInput::PartialSoftmax(..)) { "partials" } else { "a" };
        let (products, heads) = (output.products(), output.heads().is_some());
        for (index, part) in matrix.parts.iter().enumerate() {
            let weights = self.matrices.format(weight);
            let (n, k, first) = (part.rows / products, matrix.cols, part.row0);
            let of = Matvec { n, k, first, input, output, weights };
            // Heads are in the order of their matrix's rows.
            let stride = if heads { matrix.rows } else { matrix.rows / products };
            let launch = Launch::new(node.site, self.row_kernel(of, stride)?)
                .bind(of_input, from)
                .bind_all([self.row_operand(weight, index)])
                .bind("c", to)
                .bind_some("range", if heads { None } else { self.part_columns(first, n) })
                .bind_all(operands.iter().copied());
            let flops = 2.0 * (self.builder.tokens * part.rows * matrix.cols) as f64;
            self.builder.dispatch(launch.flops(flops))?;
        }
        Ok(())
    }

    /// The columns of a dispatch of batched rows. For one row they are constants of its kernel.
    fn part_columns(&mut self, first: usize, count: usize) -> Option<Slice> {
        let (col0, cols) = (first as u32, count as u32);
        let range = Range { col0, cols, ..self.builder.all_rows() };
        self.is_batched().then(|| self.builder.range(range))
    }

    /// The kernel for one row, or for batched rows `stride` elements apart.
    fn row_kernel(&mut self, of: Matvec, stride: usize) -> Result<Rc<Kernel>> {
        if !self.is_batched() {
            return self.builder.kernel(of);
        }
        let rows = self.builder.tokens;
        let Matvec { n, k, input, output, weights, .. } = of;
        self.builder.kernel(MatvecRows { n, k, rows, stride, input, output, weights })
    }

    const fn is_batched(&self) -> bool {
        matches!(self.rows, PassRows::Batched { .. })
    }

    fn decode_cache(&self) -> Result<CacheLayout> {
        match self.rows {
            PassRows::One(cache) | PassRows::Batched { cache, .. } => Ok(cache),
            _ => Err(Error::internal("no decoded rows have a cache")),
        }
    }

    /// What a product writes: the head's rows are no value.
    fn result_of(&self, node: &DecodeNode) -> Result<Slice> {
        if node.writes.is_empty() { Ok(self.logits()) } else { self.written(node, 0) }
    }
}
