//! Nodes of one decoded row or of a few: products that read a matrix once, with the norm before and the activation or
//! rotation after them in the same kernel where that is faster.

use super::linear::Added;
use super::{Cache, Lowering, Rows, label};
use crate::arch::{Attention, Norm, NormKind, WeightId};
use crate::error::{Error, Result};
use crate::graph::{Gate, Node, Op, Site, ValueId};
use crate::kernels::{
    self as k, Constant, Kernel, KvCache, MatvecInput, MatvecOutput, MatvecRowsShape, MatvecShape,
    NewestShape, Output,
};
use crate::layout::rope_shape;
use crate::plan::{Launch, Operand, Range, Slice};

/// What nodes of a decoded row leave for those behind them.
#[derive(Debug, Default)]
pub(super) struct Left {
    pub angles: Option<LeftAngles>,
    pub ranges: Option<LeftRanges>,
    /// A product that its attention has yet to do.
    pub newest: Option<Newest>,
}

/// What layers turn the heads of a decoded row by, which its embedding takes from a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeftAngles {
    pub angles: Slice,
    pub table: Slice,
}

/// A row that attention has left in ranges, and how a product puts it together.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeftRanges {
    pub row: ValueId,
    pub input: MatvecInput,
    /// The queries and the cache, where the newest key is apart.
    pub newest: Option<[Slice; 2]>,
}

/// A product of a decoded row's heads that is one dispatch with attention to the keys before it.
#[derive(Clone, Debug)]
pub(super) struct Newest {
    pub shape: NewestShape,
    pub site: Site,
    /// What it has of the dispatch's operands.
    pub operands: Vec<Operand>,
}

impl Lowering<'_> {
    /// `output = matrix · input`, which lies as `from` says, plus what is added. For one row, a bias is added like a
    /// residual.
    pub(super) fn matvec(
        &mut self,
        label: &str,
        weight: WeightId,
        from: MatvecInput,
        io: [Slice; 2],
        added: Added,
    ) -> Result<()> {
        let several = matches!(self.rows, Rows::Several { .. });
        let then = match added.output() {
            _ if added.in_place => MatvecOutput::Added,
            Output::Mode(_) | Output::GateGradient(_) => MatvecOutput::Plain,
            Output::Bias if several => MatvecOutput::Bias,
            Output::Residual | Output::Bias => MatvecOutput::Residual,
            Output::BiasedResidual => MatvecOutput::BiasedResidual,
        };
        let bias = if then == MatvecOutput::Residual { "residual" } else { "bias" };
        let mut operands: Vec<_> = added.operands(bias).collect();
        if matches!(from, MatvecInput::Ranges(..))
            && let Some([query, cache]) = self.left.ranges.and_then(|left| left.newest)
        {
            operands.extend([("query", query), ("cache", cache)]);
        }
        self.rows_of_matrix(label, weight, from, then, io, &operands)
    }

    pub(super) fn norm_linear(
        &mut self,
        node: &Node,
        norm: Norm,
        weight: WeightId,
        bias: Option<WeightId>,
    ) -> Result<()> {
        let input = self.read(node, 0)?;
        // The head's rows are no value: its node writes none.
        let output = if node.writes.is_empty() { self.logits() } else { self.written(node, 0)? };
        self.normed_matvec(node.site, norm, (weight, bias), input, output)
    }

    /// `output = matrix · norm(input)`, plus a bias if there is one.
    fn normed_matvec(
        &mut self,
        site: Site,
        norm: Norm,
        (weight, bias): (WeightId, Option<WeightId>),
        input: Slice,
        output: Slice,
    ) -> Result<()> {
        let bias = bias.map(|bias| self.whole(bias));
        if bias.is_some() || !self.fuses(norm) {
            let normed = self.tensor("norm", self.hidden())?;
            self.norm_rows(label(site, "norm"), (norm, false), [input, normed], None)?;
            let added = Added { bias, ..Added::default() };
            let io = [normed, output];
            return self.matvec(&site.to_string(), weight, MatvecInput::Plain, io, added);
        }
        let (from, then) = (norm_input(norm), MatvecOutput::Plain);
        let scale = ("norm_weight", self.whole(norm.weight));
        self.rows_of_matrix(&site.to_string(), weight, from, then, [input, output], &[scale])
    }

    /// `activate(gate) · up` of the two halves of `matrix · norm(input)`.
    pub(super) fn norm_linear_gate(
        &mut self,
        node: &Node,
        norm: Norm,
        weight: WeightId,
        gate: Gate,
    ) -> Result<()> {
        let (input, site) = (self.read(node, 0)?, node.site);
        if !self.fuses_pairs(norm, weight) {
            let gate_up = self.tensor("gate and up", 2 * gate.width)?;
            self.normed_matvec(site, norm, (weight, None), input, gate_up)?;
            let output = self.written(node, 0)?;
            let rows = [gate_up, output];
            return self.activate(label(site, "activation"), (gate, false), rows, None);
        }
        let output = self.written(node, 0)?;
        let shape = MatvecShape {
            n: gate.width,
            k: self.hidden(),
            first: 0,
            input: norm_input(norm),
            output: MatvecOutput::Gated(gate.activation),
            weights: self.matrices.format(weight),
        };
        let kernel = self.row_kernel(shape, gate.width)?;
        let launch = Launch::new(site.to_string(), kernel)
            .bind("a", input)
            .bind_all([self.row_operand(weight, 0)])
            .bind("c", output)
            .bind_some("range", self.part_columns(0, gate.width))
            .bind("norm_weight", self.whole(norm.weight));
        let flops = 4.0 * (self.builder.tokens * gate.width * self.hidden()) as f64;
        self.builder.dispatch(launch.flops(flops))
    }

    /// Whether the kernel of a product also computes the norm before it.
    fn fuses(&self, norm: Norm) -> bool {
        norm.kind == NormKind::Rms && k::matvec_fuses(self.builder.caps)
    }

    /// Whether a kernel can do so and multiply pairs of rows, a gate's and the one above it or those half a
    /// head apart: the two may lie in different parts of a matrix that is cut.
    fn fuses_pairs(&self, norm: Norm, weight: WeightId) -> bool {
        self.params.matrices[weight].parts.len() == 1 && self.fuses(norm)
    }

    /// The newest rows' queries, rotated, at the beginning of a row; where one kernel can, with their
    /// keys and values in the cache.
    pub(super) fn norm_linear_rope(
        &mut self,
        node: &Node,
        norm: Norm,
        (weight, bias): (WeightId, Option<WeightId>),
        attention: Attention,
        rope: Site,
    ) -> Result<()> {
        let input = self.read(node, 0)?;
        let Some((cache, turned)) = self.turns(norm, weight, attention)? else {
            let qkv = self.written(node, 0)?;
            self.normed_matvec(node.site, norm, (weight, bias), input, qkv)?;
            return self.rotate(rope.to_string(), attention, qkv, true);
        };
        let (shape, several) = (self.shape(attention), matches!(self.rows, Rows::Several { .. }));
        let width = if several { shape.stride() } else { attention.width() };
        let query = self.tensor("query", width)?;
        self.bind(node.writes[0], query);
        self.appended = true;
        let newest = NewestShape {
            heads: shape,
            k: self.hidden(),
            epsilon: Constant(norm.epsilon),
            biased: bias.is_some(),
            weights: self.matrices.format(weight),
        };
        let keys = self.cache(node.site, attention, cache)?;
        let mut operands = vec![
            ("a", input),
            self.row_operand(weight, 0),
            ("norm_weight", self.whole(norm.weight)),
            (if several { "table" } else { "angles" }, turned),
            ("cache", keys),
        ];
        operands.extend(bias.map(|bias| ("bias", self.whole(bias))));
        if self.joins_attention(node, &newest, cache) {
            self.left.newest = Some(Newest { shape: newest, site: node.site, operands });
            return Ok(());
        }
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
        let launch = Launch::new(node.site.to_string(), self.row_kernel(matvec, width)?)
            .bind_all(operands)
            .bind("c", query)
            .bind_some("documents", several.then_some(self.inputs.documents));
        let flops = 2.0 * (self.builder.tokens * shape.stride() * self.hidden()) as f64;
        self.builder.dispatch(launch.flops(flops))
    }

    /// Whether attention follows in ranges that a product puts together, and one kernel does both.
    fn joins_attention(&self, node: &Node, shape: &NewestShape, cache: Cache) -> bool {
        let attention =
            self.graph.only_reader(node).filter(|reader| matches!(reader.op, Op::Attention { .. }));
        matches!(self.rows, Rows::One(_))
            && k::newest_fuses(self.builder.caps, shape)
            && attention.and_then(|node| self.near_splits(node, shape.heads, cache.keys)).is_some()
    }

    /// The cache of a layer whose product of queries, keys and values also turns and appends them, and what it turns by.
    /// It turns whole heads, of one row by the angles that the embedding has left.
    fn turns(
        &self,
        norm: Norm,
        weight: WeightId,
        attention: Attention,
    ) -> Result<Option<(Cache, Slice)>> {
        let (Rows::One(cache) | Rows::Several { cache, .. }) = self.rows else {
            return Err(Error::internal("only decoded rows are of joined nodes"));
        };
        let whole = rope_shape(&self.params.architecture, attention).dims == attention.head_dim;
        let turns = cache.format == KvCache::F32 && whole && self.fuses_pairs(norm, weight);
        let table = self.angles(attention)?;
        let by = match self.left.angles {
            Some(left) if left.table == table => left.angles,
            Some(_) => return Ok(None),
            None => table,
        };
        Ok(turns.then_some((cache, by)))
    }

    /// Has the embedding leave the angles by which the first layer turns that can, and all others that turn by the same
    /// table.
    pub(super) fn leave_angles(&mut self) -> Result<()> {
        let turned = |node: &Node| match node.op {
            Op::NormLinearRope { norm, weight, attention, .. } => {
                self.turns(norm, weight, attention).transpose()
            }
            _ => None,
        };
        let Some(first) = self.graph.nodes.iter().find_map(turned) else { return Ok(()) };
        let (_, table) = first?;
        let positions = self.inputs.positions as u64;
        let angles = self.builder.tensor("angles", table.bytes / 4 / positions)?;
        self.left.angles = Some(LeftAngles { angles, table });
        Ok(())
    }

    /// A dispatch for each part of a matrix; `operands` are those besides the input, the matrix and the output.
    fn rows_of_matrix(
        &mut self,
        label: &str,
        weight: WeightId,
        input: MatvecInput,
        output: MatvecOutput,
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
            let launch = Launch::new(label, kernel)
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

    /// Which columns of their results a dispatch of several rows has: of one row they are constants of its kernel.
    fn part_columns(&mut self, first: usize, count: usize) -> Option<Slice> {
        let Rows::Several { .. } = self.rows else { return None };
        let (col0, cols) = (first as u32, count as u32);
        let range = Range { col0, cols, ..self.builder.all_rows() };
        Some(self.builder.range(range))
    }

    /// The kernel for one row, or for several rows `stride` elements apart.
    fn row_kernel(&self, shape: MatvecShape, stride: usize) -> Result<Kernel> {
        let Rows::Several { .. } = self.rows else { return k::matvec(self.builder.caps, shape) };
        let MatvecShape { n, k, input, output, weights, .. } = shape;
        let rows = self.builder.tokens;
        let shape = MatvecRowsShape { n, k, rows, stride, input, output, weights };
        k::matvec_rows(self.builder.caps, shape)
    }
}

fn norm_input(norm: Norm) -> MatvecInput {
    MatvecInput::Norm { epsilon: Constant(norm.epsilon) }
}
