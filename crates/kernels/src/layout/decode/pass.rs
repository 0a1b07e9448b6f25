//! The pass over the nodes of decoded rows, in their order.

use super::{DecodeLayouts, DecodeNode, DecodeOp, DecodeRequest, DecodeRows};
use crate::arch::{Attention, Norm, NormKind, RopeId, WeightId};
use crate::error::{Error, Result};
use crate::graph::{MlpActivation, Node, Op, Site, Value, ValueId};
use crate::kernels::{
    self as k, CacheAttention, Constant, DecodeQkvShape, DecodeSplits, KvCacheFormat, NewKey,
};
use crate::layout::{Layout, cache_attention, rope_shape};

/// The nodes by which a device decodes rows. Each norm is joined to the product after it, and the product to the
/// activation or rotation after it, where a kernel does both.
///
/// # Errors
/// `limit-exceeded` when no workgroup of attention fits.
pub fn decode_layouts(request: &DecodeRequest<'_>) -> Result<DecodeLayouts> {
    let values = request.graph.values.clone();
    let out =
        DecodeLayouts { layouts: vec![Layout::F32; values.len()], values, ..Default::default() };
    let mut pass = DecodePass { request, angles: None, out };
    pass.leave_angles();
    let mut index = request.nodes.start;
    while index < request.nodes.end {
        index += pass.nodes(index)?;
    }
    Ok(pass.out)
}

/// A norm, and the weight and the bias of the product that alone reads it.
type NormedProduct = (Norm, WeightId, Option<WeightId>);

struct DecodePass<'a> {
    request: &'a DecodeRequest<'a>,
    /// The rotation whose angles the embedding copies.
    angles: Option<RopeId>,
    out: DecodeLayouts,
}

impl<'a> DecodePass<'a> {
    /// The embedding copies the angles of one rotation, for one row: that of the first layer whose product can rotate.
    /// All layers with that rotation read these angles.
    fn leave_angles(&mut self) {
        let rotated = |index| match self.candidates(index) {
            [norm, product, rope] => match (norm.op, product.op, rope.op) {
                (Op::Norm(norm), Op::Linear { weight, .. }, Op::Rope { attention }) => {
                    attention.rope.filter(|_| self.rotates(norm, weight, attention))
                }
                _ => None,
            },
            _ => None,
        };
        let first = self.request.nodes.clone().find_map(rotated).filter(|_| self.is_one());
        if let Some(rope) = first {
            let dims = self.request.matrices.params.architecture.ropes[rope].head_dim;
            let angles = self.value("angles", dims, Layout::Angles);
            self.tensor(angles);
            (self.angles, self.out.angles) = (Some(rope), Some(angles));
        }
    }

    /// The nodes from an index on that one kernel might do: a norm, the product after it, and the activation or
    /// rotation after that. Each must be the only reader of the one before. Else the node alone: a LoRA adapter may
    /// read the norm too, or a sum where the norm is the residual stream.
    fn candidates(&self, index: usize) -> &'a [Node] {
        let nodes = &self.request.graph.nodes[index..self.request.nodes.end];
        let follows =
            |at: usize| nodes[at].reads.len() == 1 && nodes[at].reads == nodes[at - 1].writes;
        let count = match nodes {
            [Node { op: Op::Norm(_), reads, .. }, product, behind @ ..]
                if reads.len() == 1 && follows(1) =>
            {
                let again = |it: &Node| it.reads.contains(&product.reads[0]);
                match (product.op, behind.first().map(|next| next.op)) {
                    _ if behind.iter().any(again) => 1,
                    (Op::Linear { bias: None, .. }, Some(Op::Activation(mlp)))
                        if mlp.gated && follows(2) =>
                    {
                        3
                    }
                    (Op::Linear { .. }, Some(Op::Rope { .. })) if follows(2) => 3,
                    (Op::Linear { .. } | Op::Head { .. }, _) => 2,
                    _ => 1,
                }
            }
            _ => 1,
        };
        &nodes[..count]
    }

    /// Adds what this device makes of the nodes from an index on. Returns how many nodes of the graph that covers.
    fn nodes(&mut self, index: usize) -> Result<usize> {
        let candidates = self.candidates(index);
        let [Node { op: Op::Norm(norm), reads, .. }, product, behind @ ..] = candidates else {
            return self.node(index, &candidates[0]).map(|()| 1);
        };
        let (x, of) = (
            reads[0],
            match product.op {
                Op::Linear { weight, bias } => (*norm, weight, bias),
                Op::Head { weight } => (*norm, weight, None),
                _ => return Err(Error::internal(format!("{} is no product", product.site))),
            },
        );
        match behind.first().map(|next| (next.op, next)) {
            Some((Op::Activation(mlp), next)) => {
                self.norm_linear_gate(product.site, of, mlp, [x, next.writes[0]]);
            }
            Some((Op::Rope { attention }, next)) => {
                self.qkv(product.site, of, (attention, next.site), [x, next.writes[0]]);
            }
            _ => self.norm_linear(product.site, of, x, &product.writes),
        }
        Ok(candidates.len())
    }

    fn node(&mut self, index: usize, node: &Node) -> Result<()> {
        let site = node.site;
        match node.op {
            Op::Embed { weight } => {
                let (op, writes) = match (self.angles, self.out.angles) {
                    (Some(rope), Some(angles)) => {
                        (DecodeOp::EmbedAngles { weight, rope }, vec![node.writes[0], angles])
                    }
                    _ => (DecodeOp::Plain(node.op), node.writes.clone()),
                };
                self.push(op, site, &[], &writes);
            }
            Op::Linear { weight, bias } => self.linear(index, node, weight, bias),
            Op::Head { weight } => {
                let op = DecodeOp::Plain(Op::Linear { weight, bias: None });
                self.push(op, site, &node.reads, &[]);
            }
            Op::Rope { .. } => {
                self.out.layouts[node.writes[0]] = Layout::InPlaceOf(node.reads[0]);
                self.push(DecodeOp::Plain(node.op), site, &node.reads, &node.writes);
            }
            Op::Attention { attention, .. } => return self.attention(node, attention),
            _ => self.push(DecodeOp::Plain(node.op), site, &node.reads, &node.writes),
        }
        Ok(())
    }

    fn linear(&mut self, index: usize, node: &Node, weight: WeightId, bias: Option<WeightId>) {
        let input = node.reads[0];
        if let Some(&residual) = node.reads.get(1)
            && bias.is_none()
            && self.adds_in_place(index, node.writes[0], residual)
        {
            self.out.layouts[node.writes[0]] = Layout::InPlaceOf(residual);
        }
        let mut reads = node.reads.clone();
        let writer = self.out.nodes.iter().find(|writer| writer.writes.contains(&input));
        let ranges = matches!(self.out.layouts[input], Layout::PartialSoftmax { .. });
        let op = match writer.filter(|_| ranges).map(|writer| (writer.op, &writer.writes)) {
            Some((DecodeOp::QkvAttentionDecode { attention, splits, .. }, writes)) => {
                reads.insert(1, writes[0]);
                let newest = NewKey::Apart;
                DecodeOp::MergingLinear { weight, bias, attention, splits, newest }
            }
            Some((DecodeOp::Attention { attention, splits }, _)) => {
                let newest = NewKey::Among;
                DecodeOp::MergingLinear { weight, bias, attention, splits, newest }
            }
            _ => DecodeOp::Plain(node.op),
        };
        self.push(op, node.site, &reads, &node.writes);
    }

    /// Whether a product of one row is added to its residual in place: nothing reads the residual later, and the sum
    /// has no place of its own.
    fn adds_in_place(&self, index: usize, sum: ValueId, residual: ValueId) -> bool {
        let mut later = self.request.graph.nodes[index + 1..].iter();
        self.is_one()
            && self.request.outside != Some(sum)
            && later.all(|later| !later.reads.contains(&residual))
    }

    fn norm_linear(
        &mut self,
        site: Site,
        (norm, weight, bias): NormedProduct,
        x: ValueId,
        writes: &[ValueId],
    ) {
        if bias.is_none() && self.fuses(norm) {
            return self.push(DecodeOp::NormLinear { norm, weight }, site, &[x], writes);
        }
        writes.iter().for_each(|&value| self.tensor(value));
        let normed =
            self.value("norm", self.request.matrices.params.architecture.hidden, Layout::F32);
        self.push(DecodeOp::Plain(Op::Norm(norm)), site.part(" norm"), &[x], &[normed]);
        self.push(DecodeOp::Plain(Op::Linear { weight, bias }), site, &[normed], writes);
    }

    fn norm_linear_gate(
        &mut self,
        site: Site,
        (norm, weight, bias): NormedProduct,
        mlp: MlpActivation,
        [x, to]: [ValueId; 2],
    ) {
        if self.fuses_pairs(norm, weight) {
            let op = DecodeOp::NormLinearGate { norm, weight, mlp };
            return self.push(op, site, &[x], &[to]);
        }
        let gate_up = self.value("gate and up", 2 * mlp.width, Layout::F32);
        self.norm_linear(site, (norm, weight, bias), x, &[gate_up]);
        let op = DecodeOp::Plain(Op::Activation(mlp));
        self.push(op, site.part(" activation"), &[gate_up], &[to]);
    }

    fn qkv(
        &mut self,
        site: Site,
        (norm, weight, bias): NormedProduct,
        (attention, rope): (Attention, Site),
        [x, query]: [ValueId; 2],
    ) {
        if !self.rotates(norm, weight, attention) {
            self.norm_linear(site, (norm, weight, bias), x, &[query]);
            let op = DecodeOp::Plain(Op::Rope { attention });
            return self.push(op, rope, &[query], &[query]);
        }
        // Batched rows keep the product's stride, with nothing after their queries.
        let columns = if self.is_one() { attention.width() } else { attention.stride() };
        self.out.values[query] = Value { name: "query", gradient: false, columns };
        self.out.layouts[query] = Layout::QueryHeads;
        let reads: Vec<_> = [x].into_iter().chain(self.out.angles).collect();
        let op = DecodeOp::QkvAppend { norm, weight, bias, attention };
        self.push(op, site, &reads, &[query]);
    }

    fn attention(&mut self, node: &Node, attention: Attention) -> Result<()> {
        let (input, output, shape) = (node.reads[0], node.writes[0], self.shape(attention));
        if self.out.layouts[input] != Layout::QueryHeads {
            let site = Site { what: "cache append", ..node.site };
            self.push(DecodeOp::CacheAppend { attention }, site, &[input], &[]);
        }
        let columns = |splits: &DecodeSplits| splits.partials(&shape.shape);
        if let Some(splits) = self.short_context(output, shape) {
            let columns = columns(&splits);
            self.out.values[output] =
                Value { name: "attention partials", gradient: false, columns };
            self.out.layouts[output] = Layout::PartialSoftmax { count: splits.count };
            if !self.join_attention(input, output, splits) {
                let op = DecodeOp::Attention { attention, splits };
                self.push(op, node.site, &[input], &[output]);
            }
            return Ok(());
        }
        let rows = if let DecodeRows::Batched(rows) = self.request.rows { rows } else { 1 };
        let splits = k::cache_splits(self.request.caps, shape, self.request.cache.keys, rows)?;
        let op = DecodeOp::Attention { attention, splits };
        if splits.count == 1 {
            self.push(op, node.site, &[input], &[output]);
            return Ok(());
        }
        self.tensor(output);
        let layout = Layout::PartialSoftmax { count: splits.count };
        let partials = self.value("attention partials", columns(&splits), layout);
        self.push(op, node.site, &[input], &[partials]);
        let op = DecodeOp::MergePartials { attention, splits };
        self.push(op, node.site.part(" merge"), &[partials], &[output]);
        Ok(())
    }

    /// Ranges of the keys of a short text, where a product alone reads what attention leaves, and merges them.
    fn short_context(&self, output: ValueId, shape: CacheAttention) -> Option<DecodeSplits> {
        let reader = self.request.graph.only_reader(output).filter(|_| self.is_one())?;
        let merges = matches!(reader.op, Op::Linear { .. });
        let splits = || k::merged_splits(self.request.caps, shape, self.request.cache.keys);
        merges.then(splits).flatten()
    }

    /// Joins the product that has just left queries to the attention that alone reads them, if a kernel can.
    fn join_attention(&mut self, query: ValueId, output: ValueId, splits: DecodeSplits) -> bool {
        let Some(DecodeNode { op, reads, writes, site }) = self.out.nodes.last().cloned() else {
            return false;
        };
        let DecodeOp::QkvAppend { norm, weight, bias, attention } = op else { return false };
        let shape = DecodeQkvShape {
            heads: self.shape(attention),
            k: self.request.matrices.params.architecture.hidden,
            epsilon: Constant(norm.epsilon),
            biased: bias.is_some(),
            weights: self.request.matrices.format(weight),
        };
        let joins = writes == [query] && self.request.graph.only_reader(query).is_some();
        if !joins || !k::decode_qkv_fuses(self.request.caps, &shape) {
            return false;
        }
        self.out.nodes.pop();
        let norm = norm.weight;
        let op = DecodeOp::QkvAttentionDecode { shape, norm, weight, bias, attention, splits };
        self.push(op, site.part(", attention"), &reads, &[query, output]);
        true
    }

    fn is_one(&self) -> bool {
        self.request.rows == DecodeRows::One
    }

    fn shape(&self, attention: Attention) -> CacheAttention {
        cache_attention(attention, self.request.cache.ring)
    }

    /// Whether the kernel of a product also computes the norm before it.
    fn fuses(&self, norm: Norm) -> bool {
        norm.kind == NormKind::Rms && k::matvec_fuses(self.request.caps)
    }

    /// Whether a kernel can also multiply pairs of matrix rows: a gate's and its up row, or two that are half a head
    /// apart. In a matrix that is cut, the two may be in different parts.
    fn fuses_pairs(&self, norm: Norm, weight: WeightId) -> bool {
        self.request.matrices.params.matrices[weight].parts.len() == 1 && self.fuses(norm)
    }

    /// Whether a product of queries, keys and values also rotates and appends them. It rotates whole heads, of one row
    /// by the angles that the embedding copies.
    fn rotates(&self, norm: Norm, weight: WeightId, attention: Attention) -> bool {
        let rope = rope_shape(&self.request.matrices.params.architecture, attention);
        self.request.cache.format == KvCacheFormat::F32
            && rope.dims == attention.head_dim
            && self.fuses_pairs(norm, weight)
            && (self.angles.is_none() || self.angles == attention.rope)
    }

    fn value(&mut self, name: &'static str, columns: usize, layout: Layout) -> ValueId {
        self.out.values.push(Value { name, gradient: false, columns });
        self.out.layouts.push(layout);
        self.out.values.len() - 1
    }

    /// Gives a value a tensor, unless it has a place.
    fn tensor(&mut self, value: ValueId) {
        let placed = self.request.outside == Some(value) || self.out.home(value) != value;
        if !placed && !self.out.tensors.contains(&value) {
            self.out.tensors.push(value);
        }
    }

    fn push(&mut self, op: DecodeOp, site: Site, reads: &[ValueId], writes: &[ValueId]) {
        writes.iter().for_each(|&value| self.tensor(value));
        let (reads, writes) = (reads.to_vec(), writes.to_vec());
        self.out.nodes.push(DecodeNode { op, reads, writes, site });
    }
}
