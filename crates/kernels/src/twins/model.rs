//! A whole model from the twins: the graph's nodes in f32 or f64, as the oracle of the plans that are
//! lowered from the same graph. What the graph computes is held to PyTorch and to differences.

use super::normal::fill_normal;
use super::{Real, add_assign, cast};
use crate::arch::{Architecture, Attention, Init, Norm, NormKind, Param, Swap, Weight, WeightId};
use crate::config::{DropoutRates, ModelConfig};
use crate::data::Batch;
use crate::format::WriteMode;
use crate::graph::{
    Dropout, Graph, MlpActivation, Node, Op, ValueId, build, build_training, differentiate,
};
use crate::kernels::activation::twin::{
    activation_backward, activation_forward, gated_activation_backward, gated_activation_forward,
};
use crate::kernels::attention::twin::causal::{
    CausalAttention, attention_backward, attention_forward, attention_probabilities_forward,
};
use crate::kernels::dropout::twin::{KeyDropout, Masks, dropout_forward};
use crate::kernels::elementwise::twin::scale_forward;
use crate::kernels::embedding::twin::{
    embedding_backward, embedding_forward, position_backward, position_forward,
};
use crate::kernels::linear::twin::{
    Product, bias_backward, bias_forward, matmul, matmul_at, matmul_t,
};
use crate::kernels::loss::twin::{
    cross_entropy_forward, loss_sum_forward, objective_cross_entropy_backward, soft_cap_forward,
};
use crate::kernels::norm::twin::{
    head_norm_backward, head_norm_forward, layer_norm_backward, layer_norm_forward, norm_factors,
    rms_norm_backward, rms_norm_forward,
};
use crate::kernels::rope::twin::{rope_backward, rope_forward};
use std::collections::BTreeMap;

mod low_rank;

/// Weights or gradients by safetensors name.
pub type Tensors<R> = BTreeMap<String, Vec<R>>;

/// Test weights: norms and biases near 1 (near 0 where 1 is added to them), everything else normal with the
/// config's `initializer_range`.
pub fn random_tensors<R: Real>(config: &ModelConfig, seed: u64) -> Tensors<R> {
    let fill = |(stream, param): (usize, &Param)| {
        let mut values = vec![0.0; param.shape.iter().product()];
        fill_normal(seed, stream as u64, 0, config.initializer_range as f32, &mut values);
        if param.init == Init::Ones || param.name.ends_with(".bias") {
            values.iter_mut().for_each(|x| *x += 1.0);
        }
        (param.name.clone(), cast(&values))
    };
    Architecture::of(config).params().enumerate().map(fill).collect()
}

/// Test weights of an adapter, B as random as A: at B = 0 no gradient of A can be wrong.
pub fn random_adapter<R: Real>(adapted: &Architecture, seed: u64) -> Tensors<R> {
    let own = (0..).zip(&adapted.weights).filter(|(id, _)| adapted.is_low_rank(*id));
    let fill = |(id, weight): (WeightId, &Weight)| {
        let mut values = vec![0.0; weight.rows * weight.columns];
        fill_normal(seed, id as u64, 0, 0.3, &mut values);
        (weight.params[0].name.clone(), cast(&values))
    };
    own.map(fill).collect()
}

/// The model on one batch.
#[derive(Debug)]
pub struct Model<'a, R> {
    pub config: &'a ModelConfig,
    pub weights: &'a Tensors<R>,
}

impl<R: Real> Model<'_, R> {
    /// Logits `[tokens, vocab_size]`.
    pub fn logits(&self, tokens: &[u32], documents: &[u32]) -> Vec<R> {
        self.network(&Architecture::of(self.config)).logits(tokens, documents)
    }

    const fn network<'b>(&'b self, architecture: &'b Architecture) -> Network<'b, R> {
        Network { architecture, weights: self.weights }
    }

    /// What a text as one document computes on its way to the logits.
    pub fn look(&self, tokens: &[u32]) -> Look<R> {
        let architecture = Architecture::of(self.config);
        let graph = build(&architecture);
        let mut run = GraphRun::new(&architecture, graph.clone(), self.weights);
        run.all(tokens, &vec![0; tokens.len()], &[]);
        let layers = architecture.layers.len();
        // The last one is what the head reads, which may be scaled.
        let factor = |index| match index == layers {
            true => architecture.head_scale.map(|scale| 1.0 / scale),
            false => architecture.stream_scale,
        };
        let state = |index| {
            let value = graph.nodes[graph.hidden_state(index).unwrap()].writes[0];
            let factor = R::from_f64(factor(index).unwrap_or(1.0));
            run.values[value].iter().map(|&x| x * factor).collect()
        };
        Look {
            states: (0..=layers).map(state).collect(),
            attention: (0..layers).map(|layer| run.attention(layer, tokens.len())).collect(),
        }
    }

    /// Mean loss over the targets that count, in nats.
    pub fn loss(&self, batch: &Batch) -> R {
        self.network(&Architecture::of(self.config)).loss(batch)
    }

    /// The mean loss and its gradient by every tensor.
    pub fn loss_and_gradients(&self, batch: &Batch) -> (R, Tensors<R>) {
        self.network(&Architecture::of(self.config)).loss_and_gradients(batch, &|_| true)
    }
}

/// An architecture on one batch, such as that of a model with an adapter.
#[derive(Debug)]
pub struct Network<'a, R> {
    pub architecture: &'a Architecture,
    pub weights: &'a Tensors<R>,
}

impl<R: Real> Network<'_, R> {
    /// Logits `[tokens, vocab_size]`.
    pub fn logits(&self, tokens: &[u32], documents: &[u32]) -> Vec<R> {
        let mut run = GraphRun::new(self.architecture, build(self.architecture), self.weights);
        run.all(tokens, documents, &[]);
        run.logits
    }

    /// Mean loss over the targets that count, in nats.
    pub fn loss(&self, batch: &Batch) -> R {
        let logits = self.logits(&batch.tokens, &batch.documents);
        let losses = cross_entropy_forward(&logits, &batch.targets, self.architecture.vocab_size);
        let (sum, count) = loss_sum_forward(&losses, &batch.targets);
        sum / count
    }

    /// The mean loss and its gradient by every tensor of the weights that are trained.
    pub fn loss_and_gradients(
        &self,
        batch: &Batch,
        trained: &dyn Fn(WeightId) -> bool,
    ) -> (R, Tensors<R>) {
        self.loss_and_gradients_with(batch, trained, DropoutRates::default(), None)
    }

    /// Loss and gradients of a training step. Dropout, at the model's rates and the LoRA adapter's, has these masks.
    pub fn loss_and_gradients_with(
        &self,
        batch: &Batch,
        trained: &dyn Fn(WeightId) -> bool,
        rates: DropoutRates,
        masks: Option<Masks>,
    ) -> (R, Tensors<R>) {
        let forward = match masks {
            Some(_) => build_training(self.architecture, rates),
            None => build(self.architecture),
        };
        let training = differentiate(&forward, trained).expect("a forward pass");
        let mut run = GraphRun::new(self.architecture, training, self.weights);
        run.masks = masks;
        run.all(&batch.tokens, &batch.documents, &batch.targets);
        let (sum, count) = loss_sum_forward(&run.losses, &batch.targets);
        (sum / count, run.named_gradients())
    }
}

/// What a model computes on its way to the logits.
#[derive(Debug)]
pub struct Look<R> {
    /// Hidden states, counted as transformers does: `[tokens, hidden]` each.
    pub states: Vec<Vec<R>>,
    /// By layer and head: `[tokens, tokens]`.
    pub attention: Vec<Vec<Vec<R>>>,
}

/// A graph while its nodes run.
struct GraphRun<'a, R> {
    architecture: &'a Architecture,
    graph: Graph,
    weights: &'a Tensors<R>,
    values: Vec<Vec<R>>,
    gradients: BTreeMap<WeightId, Vec<R>>,
    logits: Vec<R>,
    losses: Vec<R>,
    /// The masks of a training step.
    masks: Option<Masks>,
}

/// What nodes read besides values and weights.
#[derive(Clone, Copy)]
struct Inputs<'a> {
    tokens: &'a [u32],
    documents: &'a [u32],
    targets: &'a [u32],
}

impl<'a, R: Real> GraphRun<'a, R> {
    fn new(architecture: &'a Architecture, graph: Graph, weights: &'a Tensors<R>) -> Self {
        let values = vec![vec![]; graph.values.len()];
        let (gradients, logits, losses) = (BTreeMap::new(), vec![], vec![]);
        Self { architecture, graph, weights, values, gradients, logits, losses, masks: None }
    }

    fn all(&mut self, tokens: &[u32], documents: &[u32], targets: &[u32]) {
        let inputs = Inputs { tokens, documents, targets };
        for node in self.graph.nodes.clone() {
            self.node(&node, inputs);
        }
    }

    /// The probabilities of each head of a layer, of a text that is one document: none of a layer without attention.
    fn attention(&self, layer: usize, tokens: usize) -> Vec<Vec<R>> {
        let Some((at, attention)) = self.graph.attention(layer) else { return vec![] };
        let (shape, qkv) = (shape(attention, tokens), self.read(&self.graph.nodes[at], 0));
        let keys = |row: &[R]| row[shape.key_offset()..].to_vec();
        let cache: Vec<R> = qkv.chunks_exact(shape.qkv_width()).flat_map(keys).collect();
        let head = |head| attention_probabilities_forward(shape, qkv, &cache, 0, head);
        (0..shape.n_heads).map(head).collect()
    }

    /// Parameters that are stacked into one weight.
    fn weight(&self, id: WeightId) -> Vec<R> {
        let Weight { params, columns, .. } = &self.architecture.weights[id];
        let of = |param: &Param| {
            let stored = &self.weights[&param.name];
            reordered(stored, swap_of(param, *columns).map(Swap::back))
        };
        params.iter().flat_map(of).collect()
    }

    /// What a norm multiplies by.
    fn norm_weight(&self, norm: Norm) -> Vec<R> {
        norm_factors(&self.weight(norm.weight), norm.kind == NormKind::RmsPlusOne)
    }

    fn columns(&self, id: WeightId) -> usize {
        self.architecture.weights[id].columns
    }

    fn read(&self, node: &Node, index: usize) -> &[R] {
        &self.values[node.reads[index]]
    }

    fn dropout(&mut self, node: &Node, Dropout { rate, place }: Dropout, write: WriteMode) {
        let columns = self.graph.values[node.reads[0]].columns;
        let mut y = dropout_forward(self.read(node, 0), columns, rate, place, self.drawn());
        if let Some(&residual) = node.reads.get(1) {
            add_assign(&mut y, &self.values[residual]);
        }
        self.write(node.writes[0], y, write);
    }

    fn drawn(&self) -> Masks {
        self.masks.expect("a training step has masks")
    }

    fn dropped(
        &self,
        attention: Attention,
        dropout: Option<Dropout>,
        tokens: usize,
    ) -> CausalAttention {
        let of = |Dropout { rate, place }| KeyDropout { rate, place, masks: self.drawn(), tokens };
        CausalAttention { dropout: dropout.map(of), ..shape(attention, tokens) }
    }

    fn write(&mut self, value: ValueId, data: Vec<R>, mode: WriteMode) {
        match mode {
            WriteMode::Add => add_assign(&mut self.values[value], &data),
            _ => self.values[value] = data,
        }
    }

    fn put(&mut self, node: &Node, data: Vec<R>) {
        self.write(node.writes[0], data, WriteMode::Overwrite);
    }

    fn gradient(&mut self, weight: WeightId, data: Vec<R>) {
        match self.gradients.get_mut(&weight) {
            Some(sum) => add_assign(sum, &data),
            None => _ = self.gradients.insert(weight, data),
        }
    }

    /// Computes a place for interventions that has none: the rows stay as they are. The backward pass needs nothing of
    /// them.
    fn unchanged(&mut self, node: &Node) {
        if let (Op::Intervene { .. }, Some(&residual)) = (node.op, node.reads.get(1)) {
            let mut sum = self.read(node, 0).to_vec();
            add_assign(&mut sum, &self.values[residual]);
            self.put(node, sum);
        }
    }

    fn node(&mut self, node: &Node, inputs: Inputs) {
        match node.op {
            Op::Embed { weight } => {
                let table = self.weight(weight);
                let rows = embedding_forward(inputs.tokens, &table, self.columns(weight));
                self.put(node, rows);
            }
            Op::Positions { weight } => self.positions(node, weight, inputs.documents),
            Op::Norm(norm) => self.norm(node, norm),
            Op::Linear { weight, bias } => {
                let base = node.reads.get(1).map(|&value| self.values[value].as_slice());
                let mut y = self.product(weight, self.read(node, 0), base);
                if let Some(bias) = bias {
                    bias_forward(&mut y, &self.weight(bias));
                }
                self.put(node, y);
            }
            Op::Scale { factor } => {
                scale_forward(&mut self.values[node.writes[0]], R::from_f64(factor));
            }
            Op::Dropout { dropout, write } => self.dropout(node, dropout, write),
            Op::Intervene { .. } | Op::Capture { .. } => self.unchanged(node),
            Op::ShortRows(group) => self.short_rows(node, group),
            Op::LowRank(group) => self.low_rank(node, group),
            Op::Rope { attention } => self.rotate(node, attention, inputs.documents, true),
            Op::RopeBackward { attention } => self.rotate(node, attention, inputs.documents, false),
            Op::Attention { attention, dropout } => {
                let shape = self.dropped(attention, dropout, inputs.documents.len());
                let (y, lse) = attention_forward(shape, self.read(node, 0), inputs.documents);
                self.put(node, y);
                self.write(node.writes[1], lse, WriteMode::Overwrite);
            }
            Op::HeadNorms { norms, attention } => {
                let shape = shape(attention, inputs.documents.len());
                let weight = self.norm_weight(norms);
                let y = head_norm_forward(shape, self.read(node, 0), &weight, norms.epsilon);
                self.put(node, y);
            }
            Op::Activation(mlp) => {
                let y = activated(mlp, self.read(node, 0));
                self.put(node, y);
            }
            Op::Head { weight } => {
                self.logits = self.product(weight, self.read(node, 0), None);
                soft_cap_forward(&mut self.logits, self.architecture.logit_soft_cap);
            }
            _ => self.backward(node, inputs),
        }
    }

    fn backward(&mut self, node: &Node, inputs: Inputs) {
        match node.op {
            Op::HeadBackward { weight, trained } => {
                self.head_backward(node, weight, trained, inputs)
            }
            Op::LinearInput { weight, write } => {
                let d_x = self.input_gradient(weight, self.read(node, 0));
                self.write(node.writes[0], d_x, write);
            }
            Op::LinearWeight { weight, .. } => {
                let d_weight = self.weight_gradient(weight, self.read(node, 0), self.read(node, 1));
                self.gradient(weight, d_weight);
            }
            Op::LowRankInput(group) => self.low_rank_input(node, group),
            Op::ShortRowsInput { group, write } => self.short_rows_input(node, group, write),
            Op::LowRankWeights { group, .. } => self.low_rank_weights(node, group),
            Op::BiasBackward { bias } => {
                let columns = self.weight(bias).len();
                let d_bias = bias_backward(self.read(node, 0), columns);
                self.gradient(bias, d_bias);
            }
            Op::NormBackward { norm, trained, write } => {
                self.norm_backward(node, norm, trained, write);
            }
            Op::HeadNormsBackward { norms, attention, trained } => {
                let shape = shape(attention, inputs.documents.len());
                let (x, d_y) = (self.read(node, 0), self.read(node, 1));
                let weight = self.norm_weight(norms);
                let (d_x, d_weight) = head_norm_backward(shape, x, &weight, d_y, norms.epsilon);
                self.put(node, d_x);
                if trained {
                    self.gradient(norms.weight, d_weight);
                }
            }
            Op::AttentionBackward { attention, dropout } => {
                let shape = self.dropped(attention, dropout, inputs.documents.len());
                let [qkv, output, lse, d_output] = [0, 1, 2, 3].map(|index| self.read(node, index));
                let d_qkv = attention_backward(shape, qkv, inputs.documents, output, lse, d_output);
                self.put(node, d_qkv);
            }
            Op::ActivationBackward(mlp) => {
                let (d_x, y) = activated_backward(mlp, self.read(node, 0), self.read(node, 1));
                self.put(node, d_x);
                self.write(node.writes[1], y, WriteMode::Overwrite);
            }
            Op::EmbedBackward { weight, .. } => self.embed_backward(node, weight, inputs.tokens),
            Op::PositionsBackward { weight } => {
                self.positions_backward(node, weight, inputs.documents);
            }
            other => panic!("{other:?} is for one row"),
        }
    }

    fn head_backward(&mut self, node: &Node, weight: WeightId, trained: bool, inputs: Inputs) {
        let mut logits = self.product(weight, self.read(node, 0), None);
        let counted = inputs.targets.iter().filter(|&&t| t != crate::data::IGNORE_INDEX).count();
        let scale = R::ONE / R::from_usize(counted);
        let vocabulary = self.architecture.vocab_size;
        let (plain, cap) = ([R::ZERO; 2], self.architecture.logit_soft_cap);
        let targets = inputs.targets;
        self.losses =
            objective_cross_entropy_backward(&mut logits, targets, vocabulary, scale, plain, cap);
        if !node.writes.is_empty() {
            let d_x = self.input_gradient(weight, &logits);
            self.put(node, d_x);
        }
        if trained {
            let d_weight = self.weight_gradient(weight, &logits, self.read(node, 0));
            self.gradient(weight, d_weight);
        }
    }

    fn positions(&mut self, node: &Node, weight: WeightId, documents: &[u32]) {
        let (table, hidden) = (self.weight(weight), self.columns(weight));
        position_forward(&mut self.values[node.writes[0]], &table, documents, 0, hidden);
    }

    fn embed_backward(&mut self, node: &Node, weight: WeightId, tokens: &[u32]) {
        let shape = [self.columns(weight), self.architecture.vocab_size];
        let padding = self.architecture.padding;
        let d_table = embedding_backward(tokens, self.read(node, 0), shape, padding);
        self.gradient(weight, d_table);
    }

    fn positions_backward(&mut self, node: &Node, weight: WeightId, documents: &[u32]) {
        let (rows, hidden) = (self.architecture.weights[weight].rows, self.columns(weight));
        let d_table = position_backward(documents, self.read(node, 0), hidden, rows);
        self.gradient(weight, d_table);
    }

    fn norm(&mut self, node: &Node, norm: Norm) {
        let forward = match norm.kind {
            NormKind::Rms | NormKind::RmsPlusOne => rms_norm_forward,
            NormKind::Layer => layer_norm_forward,
        };
        let mut y = forward(self.read(node, 0), &self.norm_weight(norm), norm.epsilon);
        if let Some(&residual) = node.reads.get(1) {
            add_assign(&mut y, &self.values[residual]);
        }
        self.put(node, y);
    }

    fn norm_backward(&mut self, node: &Node, norm: Norm, trained: bool, write: WriteMode) {
        let (x, d_y) = (self.read(node, 0), self.read(node, 1));
        let backward = match norm.kind {
            NormKind::Rms | NormKind::RmsPlusOne => rms_norm_backward,
            NormKind::Layer => layer_norm_backward,
        };
        let (d_x, d_weight) = backward(x, &self.norm_weight(norm), d_y, norm.epsilon);
        self.write(node.writes[0], d_x, write);
        if trained {
            self.gradient(norm.weight, d_weight);
        }
    }

    fn rotate(&mut self, node: &Node, attention: Attention, documents: &[u32], forward: bool) {
        let shape = shape(attention, documents.len());
        let rope = &self.architecture.ropes[attention.rope.expect("what is rotated has angles")];
        let mut rows = self.read(node, 0).to_vec();
        let rotate = if forward { rope_forward } else { rope_backward };
        rotate(shape, &mut rows, documents, 0, rope);
        self.put(node, rows);
    }

    fn product(&self, weight: WeightId, x: &[R], base: Option<&[R]>) -> Vec<R> {
        let (matrix, k) = (self.weight(weight), self.columns(weight));
        matmul_t(Product { m: x.len() / k, n: matrix.len() / k, k }, x, &matrix, base)
    }

    fn input_gradient(&self, weight: WeightId, d_y: &[R]) -> Vec<R> {
        let (matrix, n) = (self.weight(weight), self.columns(weight));
        let k = matrix.len() / n;
        matmul(Product { m: d_y.len() / k, n, k }, d_y, &matrix, None)
    }

    fn weight_gradient(&self, weight: WeightId, d_y: &[R], x: &[R]) -> Vec<R> {
        let n = self.columns(weight);
        let rows = x.len() / n;
        matmul_at(Product { m: d_y.len() / rows, n, k: rows }, d_y, x, None)
    }

    fn named_gradients(&self) -> Tensors<R> {
        let mut named = Tensors::new();
        for (&id, gradient) in &self.gradients {
            let mut rest = gradient.as_slice();
            for param in &self.architecture.weights[id].params {
                let (part, tail) = rest.split_at(param.shape.iter().product());
                let swap = swap_of(param, self.columns(id));
                named.insert(param.name.clone(), reordered(part, swap));
                rest = tail;
            }
        }
        named
    }
}

fn activated<R: Real>(mlp: MlpActivation, x: &[R]) -> Vec<R> {
    if mlp.gated {
        gated_activation_forward(mlp.activation, x, mlp.width)
    } else {
        activation_forward(mlp.activation, x)
    }
}

/// The gradient, and what [`activated`] gives.
fn activated_backward<R: Real>(mlp: MlpActivation, x: &[R], d_y: &[R]) -> (Vec<R>, Vec<R>) {
    if mlp.gated {
        gated_activation_backward(mlp.activation, x, d_y, mlp.width)
    } else {
        activation_backward(mlp.activation, x, d_y)
    }
}

/// What takes a parameter of a weight with `columns` columns to the checkpoint's order.
fn swap_of(param: &Param, columns: usize) -> Option<Swap> {
    param.stored.swap(param.rows(columns), columns)
}

fn reordered<R: Real>(values: &[R], swap: Option<Swap>) -> Vec<R> {
    let mut moved = values.to_vec();
    if let Some(swap) = swap {
        for (element, &value) in values.iter().enumerate() {
            moved[swap.place(element)] = value;
        }
    }
    moved
}

fn shape(attention: Attention, tokens: usize) -> CausalAttention {
    CausalAttention {
        n_heads: attention.heads,
        n_kv_heads: attention.kv_heads,
        head_dim: attention.head_dim,
        tokens,
        window: attention.window,
        soft_cap: attention.soft_cap,
        scale: attention.scale,
        dropout: None,
    }
}

#[cfg(test)]
mod tests;
