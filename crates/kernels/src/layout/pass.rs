//! The pass over a plan's nodes, in their order.

use super::shapes::{TokenRows, activation_sums, batch_attention, gated_shape, rope_shape};
use super::{
    ColumnSums, DocumentLength, Fusion, LaidNode, Layout, Layouts, PassKind, ProductSums, Request,
    RotatedBy, SplitK,
};
use crate::arch::{Attention, NormKind, WeightId};
use crate::graph::{Dropout, MlpActivation, Node, Op, ValueId};
use crate::kernels::{
    self as k, BatchAttention, Constant, Element, Form, KeyValueOwner, LinearShape, PartialSums,
    ProductTiles,
};
use crate::plan::Range;

pub(super) struct LayoutPass<'a> {
    pub request: Request<'a>,
    pub layouts: Layouts<'a>,
    /// By value the nodes that read or write it, but for those whose terms a product's sums have.
    touching: Vec<Vec<usize>>,
    /// By node the value whose partial sums it adds up.
    sums_of: Vec<Option<ValueId>>,
    /// By node whether another one's dispatches do its work.
    absorbed: Vec<bool>,
    /// By product the node of an adapter whose terms its sums have too.
    adapted: Vec<Option<usize>>,
    /// Groups that are not ended yet.
    pub columns: Option<ColumnSums>,
    pub products: Option<ProductSums>,
}

/// The layouts of a plan's values, and which of its nodes are joined.
pub fn layouts(request: Request<'_>) -> Layouts<'_> {
    let nodes = request.nodes.clone();
    let mut pass = LayoutPass::new(request);
    for index in nodes {
        let node = &pass.request.graph.nodes[index];
        let fusion = if pass.absorbed[index] { Fusion::Absorbed } else { pass.fusion(index, node) };
        pass.layouts.nodes.push(LaidNode::Node(index, fusion));
    }
    pass.sum_products();
    pass.sum_columns();
    pass.layouts
}

/// Layouts that depend on all nodes: f16, if products round to it.
fn values(request: &Request<'_>) -> Vec<Layout> {
    if !request.matrices.mixed && !request.matrices.rounds_rows() {
        return vec![Layout::F32; request.graph.values.len()];
    }
    let f16 = request.f16_values().into_iter();
    f16.map(|is| if is { Layout::F16 } else { Layout::F32 }).collect()
}

impl<'a> LayoutPass<'a> {
    pub fn new(request: Request<'a>) -> Self {
        let graph = request.graph;
        let adapted = request.adapted_products();
        let mut absorbed = vec![false; graph.nodes.len()];
        adapted.iter().flatten().for_each(|&low| absorbed[low] = true);
        let mut touching = vec![vec![]; graph.values.len()];
        let alone = |(index, _): &(usize, &Node)| !absorbed[*index];
        for (index, node) in graph.nodes.iter().enumerate().filter(alone) {
            for &value in node.reads.iter().chain(&node.writes) {
                if touching[value].last() != Some(&index) {
                    touching[value].push(index);
                }
            }
        }
        Self {
            layouts: Layouts {
                graph,
                values: values(&request),
                nodes: vec![],
                tensors: vec![],
                column_sums: vec![],
                product_sums: vec![],
            },
            touching,
            sums_of: vec![None; graph.nodes.len()],
            absorbed,
            adapted,
            columns: None,
            products: None,
            request,
        }
    }

    fn fusion(&mut self, index: usize, node: &Node) -> Fusion {
        let fusion = self.own_fusion(index, node);
        match self.adapted[index] {
            Some(low) => Fusion::Adapted(low, Box::new(fusion)),
            None => fusion,
        }
    }

    fn own_fusion(&mut self, index: usize, node: &Node) -> Fusion {
        match node.op {
            Op::Linear { weight, bias } => self.linear(index, node, weight, bias.is_some()),
            Op::Norm(_) | Op::Activation(_) | Op::ActivationBackward(_) => self.sum(index),
            Op::HeadNorms { .. } if self.rotation_norms(index).is_some() => Fusion::Absorbed,
            Op::Rope { .. } | Op::RopeBackward { .. } => self.rope(index, node),
            Op::LinearInput { weight, .. } => self.linear_input(index, node, weight),
            Op::NormBackward { norm, trained, .. } => {
                let columns = self.columns_of(norm.weight);
                let rows = k::norm_rows(self.request.caps, self.request.tokens);
                self.norm_backward(index, node, (norm.weight, trained), [columns, rows])
            }
            Op::HeadNormsBackward { norms, attention, trained } => {
                let rows = k::head_norm_rows(self.request.caps, self.request.tokens);
                let shape = [2 * attention.head_dim, rows];
                self.norm_backward(index, node, (norms.weight, trained), shape)
            }
            Op::AttentionBackward { attention, dropout } => {
                self.attention_backward(index, node, attention, dropout)
            }
            Op::LinearWeight { weight, write } => {
                let rows = self.rows(node, weight);
                Fusion::WeightGradient(self.linear_weight(node, weight, rows, write))
            }
            Op::HeadBackward { weight, trained: true } => {
                Fusion::WeightGradient(self.head_gradient(weight))
            }
            Op::EmbedBackward { .. } => {
                // A head that shares the table may have left its part of the gradient waiting.
                self.sum_products();
                Fusion::None
            }
            _ => Fusion::None,
        }
    }

    fn sum(&self, index: usize) -> Fusion {
        self.sums_of[index].map_or(Fusion::None, Fusion::ReducesSplitK)
    }

    /// The node that reads a value first, unless that is for another plan.
    fn first_reader(&self, value: ValueId) -> Option<usize> {
        let outside = self.request.outside == Some(value);
        self.touching[value].get(1).copied().filter(|_| !outside)
    }

    /// The node that alone reads what a node alone writes.
    fn only_reader(&self, index: usize, node: &Node) -> Option<usize> {
        match *self.touching[node.writes[0]] {
            [first, reader] if first == index => Some(reader),
            _ => None,
        }
    }

    fn rows(&self, node: &Node, weight: WeightId) -> TokenRows {
        let stride = self.request.matrices.params.matrices[weight].rows;
        let (rows, result) = (self.request.tokens as u32, Element::F32);
        let rows = Range { rows, ..Range::default() };
        let rows = TokenRows { rows, stride, operands: [result; 2], result };
        self.layouts.product_rows(node, rows)
    }

    /// The product of a node with a weight, or with the first part of one.
    fn product(&self, node: &Node, form: Form, weight: WeightId) -> LinearShape {
        self.request.matrices.product(form, weight, 0, self.rows(node, weight))
    }

    fn columns_of(&self, weight: WeightId) -> usize {
        let matrix = &self.request.matrices.params.matrices[weight];
        matrix.rows * matrix.cols
    }

    fn linear(&mut self, index: usize, node: &Node, weight: WeightId, biased: bool) -> Fusion {
        if let Some(activation) = self.gated(index, node, weight).filter(|_| !biased) {
            self.absorbed[activation] = true;
            return Fusion::Gated(activation);
        }
        let (value, stream) = (node.writes[0], node.reads.get(1).copied());
        let reader = self.first_reader(value).filter(|_| !biased);
        let Some(reader) = reader.filter(|&reader| self.adds_up(reader, stream.is_some())) else {
            return Fusion::None;
        };
        let shape = self.product(node, Form::MatmulT, weight);
        self.split_product((value, stream), weight, &shape, reader)
    }

    /// The activation after a product of a prompt's rows, if one kernel can do both. In a batch the backward pass reads
    /// gate and up again.
    fn gated(&self, index: usize, node: &Node, weight: WeightId) -> Option<usize> {
        let reader = self.only_reader(index, node)?;
        let adapted = self.adapted[index].is_some();
        let prompt = matches!(self.request.kind, PassKind::Prompt { .. }) && !adapted;
        let next = &self.request.graph.nodes[reader];
        let Op::Activation(MlpActivation { gated: true, .. }) = next.op else { return None };
        let matrices = &self.request.matrices;
        let whole = matrices.params.matrices[weight].parts.len() == 1;
        if !(prompt && whole && node.reads.len() == 1 && self.layouts.is_f16(next.writes[0])) {
            return None;
        }
        let shape = gated_shape(self.product(node, Form::MatmulT, weight));
        k::linear_gates(self.request.caps, &matrices.read(weight, shape)).then_some(reader)
    }

    /// Whether `reader` has a kernel that adds up partial sums as it reads them. `to_stream`: the product had a residual,
    /// which that kernel then adds and writes where others read it. Norms of heads have none, unless a rotation does them: a
    /// product in front of others has a sum of its own (`linear_sum`).
    fn adds_up(&self, index: usize, to_stream: bool) -> bool {
        let reader = &self.request.graph.nodes[index];
        match reader.op {
            Op::HeadNorms { .. } => !to_stream && self.rotation_norms(index).is_some(),
            Op::Norm(norm) => to_stream && norm.kind != NormKind::Layer && reader.reads.len() == 1,
            Op::Rope { attention } => {
                let shape = rope_shape(&self.request.matrices.params.architecture, attention);
                !to_stream && !self.layouts.is_f16(reader.writes[0]) && shape.rotates_sums()
            }
            Op::Activation(mlp) => !to_stream && activation_sums(mlp),
            _ => false,
        }
    }

    /// A product that leaves partial sums, where its matrix is whole, its K is split and its result is f32.
    fn split_product(
        &mut self,
        (value, stream): (ValueId, Option<ValueId>),
        weight: WeightId,
        shape: &LinearShape,
        reader: usize,
    ) -> Fusion {
        let matrices = &self.request.matrices;
        let whole = matrices.params.matrices[weight].parts.len() == 1;
        if !whole || shape.padded || shape.c != Element::F32 {
            return Fusion::None;
        }
        let shape = matrices.read(weight, *shape);
        let sums = match self.request.kind {
            PassKind::Prompt { .. } => k::linear_parts_for_reader(self.request.caps, &shape),
            PassKind::Batch { .. } => k::linear_parts(self.request.caps, &shape),
        };
        if sums == PartialSums::WHOLE {
            return Fusion::None;
        }
        let slice = self.tensor("parts of a product", 4 * sums.count as u64 * sums.apart as u64);
        self.layouts.values[value] = Layout::SplitK(SplitK { sums, slice, stream });
        self.sums_of[reader] = Some(value);
        Fusion::LeavesSplitK
    }

    /// A rotation is in place where both values have one layout.
    fn rope(&mut self, index: usize, node: &Node) -> Fusion {
        if !self.layouts.is_f16(node.writes[0]) {
            self.layouts.values[node.writes[0]] = Layout::InPlaceOf(node.reads[0]);
        }
        if !self.rotation_appends(node) {
            return self.sum(index);
        }
        let norms = self.touching[node.reads[0]][0];
        if self.rotation_norms(norms) != Some(index) {
            return Fusion::Appends { sum_of: self.sums_of[index], norms: None };
        }
        let rows = self.request.graph.nodes[norms].reads[0];
        self.layouts.values[node.writes[0]] = Layout::InPlaceOf(rows);
        Fusion::Appends { sum_of: self.sums_of[norms], norms: Some(norms) }
    }

    fn rotation_appends(&self, node: &Node) -> bool {
        let Op::Rope { attention } = node.op else { return false };
        let architecture = &self.request.matrices.params.architecture;
        matches!(self.request.kind, PassKind::Prompt { appends: true })
            && !self.layouts.is_f16(node.writes[0])
            && rope_shape(architecture, attention).rotates_sums()
    }

    /// The rotation that does the norms of heads at `index`: it appends, norms and rotation have the same heads, and nothing
    /// else reads the rows with norms, or later those without.
    fn rotation_norms(&self, index: usize) -> Option<usize> {
        let node = &self.request.graph.nodes[index];
        let Op::HeadNorms { attention: normed, .. } = node.op else { return None };
        let rope = self.only_reader(index, node)?;
        let Op::Rope { attention } = self.request.graph.nodes[rope].op else { return None };
        let shape = rope_shape(&self.request.matrices.params.architecture, attention);
        let last = self.touching[node.reads[0]].last() == Some(&index);
        (last
            && self.rotation_appends(&self.request.graph.nodes[rope])
            && normed.head_dim == attention.head_dim
            && k::rope_norms_heads(self.request.caps, shape))
        .then_some(rope)
    }

    fn linear_input(&mut self, index: usize, node: &Node, weight: WeightId) -> Fusion {
        let Some(reader) = self.only_reader(index, node) else { return Fusion::None };
        let shape = self.product(node, Form::Matmul, weight);
        let op = self.request.graph.nodes[reader].op;
        if matches!(op, Op::ActivationBackward(MlpActivation { gated: true, .. }))
            && self.request.matrices.is_plain(weight)
            && k::linear_gives_gate_gradient(self.request.caps, &shape)
        {
            self.absorbed[reader] = true;
            return Fusion::GateGradient(reader);
        }
        let adds_up = match op {
            Op::NormBackward { norm, .. } => norm.kind != NormKind::Layer,
            Op::ActivationBackward(mlp) => activation_sums(mlp),
            Op::AttentionBackward { .. } => true,
            _ => false,
        };
        if !adds_up {
            return Fusion::None;
        }
        self.split_product((node.writes[0], None), weight, &shape, reader)
    }

    fn norm_backward(
        &mut self,
        index: usize,
        node: &Node,
        weight: (WeightId, bool),
        shape: [usize; 2],
    ) -> Fusion {
        let partials = self.column_partials(node.site, weight, shape);
        Fusion::NormBackward { sum_of: self.sums_of[index], partials }
    }

    fn attention_backward(
        &mut self,
        index: usize,
        node: &Node,
        attention: Attention,
        dropout: Option<Dropout>,
    ) -> Fusion {
        let batch = BatchAttention {
            rounds: self.request.matrices.mixed,
            dropout: dropout.map(|dropout| Constant(dropout.rate)),
            ..batch_attention(attention, self.request.tokens)
        };
        let tiles = self.product_tiles(batch);
        let rotation = self.rotation(node, batch, tiles);
        if let Some((rope, _)) = rotation {
            self.absorbed[rope] = true;
        }
        Fusion::AttentionBackward { sum_of: self.sums_of[index], rotation, tiles }
    }

    /// The room of attention's backward pass, where that is by products.
    fn product_tiles(&self, batch: BatchAttention) -> Option<ProductTiles> {
        let PassKind::Batch { by_products, .. } = self.request.kind else { return None };
        let caps = self.request.caps;
        match by_products? {
            DocumentLength::Short => k::attention_product_tiles(caps, batch),
            DocumentLength::Any { turns } => k::attention_long_product_tiles(caps, batch, turns),
        }
    }

    /// The rotation after attention's gradients, if one of their dispatches can do it.
    fn rotation(
        &self,
        node: &Node,
        batch: BatchAttention,
        products: Option<ProductTiles>,
    ) -> Option<(usize, RotatedBy)> {
        let (caps, shape, own) = (self.request.caps, batch.shape, node.writes[0]);
        let rotates = |next: &Node| match next.op {
            Op::RopeBackward { attention } => {
                let shape = rope_shape(&self.request.matrices.params.architecture, attention);
                next.reads[0] == own && shape.dims == shape.head_dim
            }
            _ => false,
        };
        let rope = self.request.graph.nodes.iter().position(rotates)?;
        let by_gradients = (batch.rounds && k::attention_backward_f16(caps, shape))
            || products.is_some_and(|room| k::attention_products_rotate(caps, batch, room));
        if by_gradients {
            return Some((rope, RotatedBy::Gradients));
        }
        let sums = shape.heads > shape.kv_heads
            && (products.is_some() || k::key_value_owner(caps, batch) == KeyValueOwner::Head);
        let target = self.request.graph.nodes[rope].writes[0];
        let f16 = [own, target].iter().any(|&value| self.layouts.is_f16(value));
        let by_sum = sums && !f16 && shape.rotation().rotates_sums();
        by_sum.then_some((rope, RotatedBy::GroupSum))
    }
}
