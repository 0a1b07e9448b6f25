//! The backward pass, derived from the forward pass: reverse-mode differentiation, node by node
//! (Griewank and Walther, "Evaluating Derivatives", 2008).

use super::{Captured, Dropout, Graph, Node, Op, Site, Value, ValueId};
use crate::arch::{LowRankGroup, WeightId};
use crate::error::{Error, Result};
use crate::format::WriteMode;
use std::collections::{BTreeMap, BTreeSet};

/// Adds the backward pass of the mean loss to a forward pass. A weight that is not `trained` gets no
/// gradient, and nothing runs that only its gradient, or those below it, would need.
///
/// # Errors
/// `internal` for a graph that is no forward pass, or whose order the backward pass cannot reverse.
pub fn differentiate(forward: &Graph, trained: &dyn Fn(WeightId) -> bool) -> Result<Graph> {
    derived(forward, trained, &[])
}

/// Adds the backward pass back to the state after the embedding, and captures the gradients of the states after these
/// numbers of layers, in the order of the list. No weight is trained.
///
/// # Errors
/// As [`differentiate`]; `internal` for a state that there is not.
pub fn differentiate_states(forward: &Graph, states: &[usize]) -> Result<Graph> {
    derived(forward, &|_| false, states)
}

/// The nodes that leave these states, with where each is captured.
fn captured(forward: &Graph, states: &[usize]) -> Result<BTreeMap<usize, Vec<usize>>> {
    let mut nodes: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (index, &state) in states.iter().enumerate() {
        let none = || Error::internal(format!("no node leaves state {state}"));
        let node = forward.hidden_state(state).ok_or_else(none)?.min(forward.layers_end - 1);
        nodes.entry(node).or_default().push(index);
    }
    Ok(nodes)
}

fn derived(forward: &Graph, trained: &dyn Fn(WeightId) -> bool, states: &[usize]) -> Result<Graph> {
    let captured = captured(forward, states)?;
    // Nothing is asked of what comes before the first state.
    let first = if states.is_empty() { None } else { forward.hidden_state(0) };
    let embedding = first.map(|node| forward.nodes[node].writes[0]);
    let needed = needed(forward, trained, embedding);
    let gates = forward.nodes.iter().filter(|node| matches!(node.op, Op::Activation(_)));
    let gated = gates.map(|node| node.writes[0]).collect();
    let drops = forward.nodes.iter().filter(|node| matches!(node.op, Op::Dropout { .. }));
    let dropped = drops.map(|node| (node.writes[0], node.clone())).collect();
    let mut graph = forward.clone();
    let head = graph.nodes.pop().ok_or_else(|| Error::internal("a graph without nodes"))?;
    graph.backward = graph.nodes.len();
    let mut pass = Pass {
        graph,
        trained,
        needed,
        gated,
        dropped,
        gradients: BTreeMap::new(),
        again: BTreeMap::new(),
        sums: BTreeMap::new(),
        late: vec![],
        written: BTreeSet::new(),
        broken: None,
    };
    pass.head(&head);
    for (index, node) in forward.nodes[..forward.nodes.len() - 1].iter().enumerate().rev() {
        for &number in captured.get(&index).into_iter().flatten() {
            pass.capture(node, number);
        }
        if first.is_some_and(|first| index <= first) {
            break;
        }
        pass.node(node);
    }
    pass.check(pass.late.is_empty(), "a weight gradient waits for a value that never returns");
    pass.broken.map_or(Ok(pass.graph), |broken| Err(Error::internal(broken)))
}

/// Values on which a trained weight has an influence, or a value that is wanted: their gradients are needed.
fn needed(
    forward: &Graph,
    trained: &dyn Fn(WeightId) -> bool,
    wanted: Option<ValueId>,
) -> BTreeSet<ValueId> {
    let mut needed = BTreeSet::from_iter(wanted);
    for node in &forward.nodes {
        let weights = match node.op {
            Op::Embed { weight } | Op::Positions { weight } | Op::Head { weight } => {
                [Some(weight), None]
            }
            Op::Linear { weight, bias } => [Some(weight), bias],
            Op::Norm(norm) | Op::HeadNorms { norms: norm, .. } => [Some(norm.weight), None],
            Op::ShortRows(group) => [Some(group.a), None],
            _ => [None, None],
        };
        if weights.into_iter().flatten().any(trained)
            || node.reads.iter().any(|read| needed.contains(read))
        {
            needed.extend(node.writes.iter().copied());
        }
    }
    needed
}

/// What a gradient is of that waits for its input.
#[derive(Clone, Copy)]
enum LateOf {
    Linear(WeightId),
    /// With what B reads besides: the gradient by the sum, and z.
    LowRank(LowRankGroup, [ValueId; 2]),
}

/// A weight gradient whose input was not kept, until the backward pass has it again.
struct Late {
    of: LateOf,
    d_y: ValueId,
    x: ValueId,
    site: Site,
}

impl Late {
    /// Whether it reads a gradient.
    fn reads(&self, gradient: ValueId) -> bool {
        let of_sum = matches!(self.of, LateOf::LowRank(_, [sum, _]) if sum == gradient);
        self.d_y == gradient || of_sum
    }
}

struct Pass<'a> {
    graph: Graph,
    trained: &'a dyn Fn(WeightId) -> bool,
    needed: BTreeSet<ValueId>,
    /// What the activations give.
    gated: BTreeSet<ValueId>,
    /// What the nodes of dropout give, and these: masks are drawn again rather than kept.
    dropped: BTreeMap<ValueId, Node>,
    /// The value that holds the gradient of another.
    gradients: BTreeMap<ValueId, ValueId>,
    /// Values of the forward pass that the backward pass has computed again, by what they are then.
    again: BTreeMap<ValueId, ValueId>,
    /// By short rows the gradient by the sum that their products with B are added to.
    sums: BTreeMap<ValueId, ValueId>,
    late: Vec<Late>,
    /// Weights whose gradient a node of this pass has written.
    written: BTreeSet<WeightId>,
    /// What the graph does that no forward pass does.
    broken: Option<&'static str>,
}

impl Pass<'_> {
    /// Notes what makes the pass fail.
    fn check(&mut self, holds: bool, what: &'static str) {
        if !holds {
            self.broken.get_or_insert(what);
        }
    }

    fn emit(&mut self, op: Op, site: Site, reads: &[ValueId], writes: &[ValueId]) {
        let (reads, writes) = (reads.to_vec(), writes.to_vec());
        self.graph.nodes.push(Node { op, reads, writes, site });
    }

    /// The gradient of a value that is about to be written, and how: the first node that does so makes it.
    fn gradient(&mut self, of: ValueId) -> (ValueId, WriteMode) {
        if let Some(&gradient) = self.gradients.get(&of) {
            let waits = self.late.iter().any(|late| late.reads(gradient));
            self.check(!waits, "a gradient is added to before all have read it");
            return (gradient, WriteMode::Add);
        }
        let value = Value { gradient: true, ..self.graph.values[of] };
        let gradient = self.graph.add(value);
        self.gradients.insert(of, gradient);
        (gradient, WriteMode::Overwrite)
    }

    /// How a weight's gradient is written: a shared weight's second node adds to the first one's.
    fn weight_write(&mut self, weight: WeightId) -> WriteMode {
        if self.written.insert(weight) { WriteMode::AddAfterFirst } else { WriteMode::Add }
    }

    fn head(&mut self, node: &Node) {
        let Op::Head { weight } = node.op else {
            return self.check(false, "a graph ends with its head");
        };
        let trained = (self.trained)(weight);
        if trained {
            self.written.insert(weight);
        }
        let x = node.reads[0];
        let d_x = self.needed.contains(&x).then(|| self.gradient(x).0);
        let writes: Vec<ValueId> = d_x.into_iter().collect();
        self.emit(Op::HeadBackward { weight, trained }, node.site, &[x], &writes);
    }

    /// Captures the gradient of what a node leaves, which is whole when its turn comes.
    fn capture(&mut self, node: &Node, index: usize) {
        let value = node.writes[0];
        match self.gradients.get(&value).copied() {
            Some(gradient) => {
                let columns = self.graph.values[value].columns;
                let op = Op::Capture { what: Captured::Residual, index, first: 0, columns };
                self.emit(op, node.site, &[gradient], &[]);
            }
            None => self.check(false, "a state has no gradient"),
        }
    }

    fn node(&mut self, node: &Node) {
        let Some(&d_y) = node.writes.first().and_then(|value| self.gradients.get(value)) else {
            return;
        };
        match node.op {
            Op::Linear { weight, bias } => self.linear(node, weight, bias, d_y),
            Op::Norm(norm) => {
                let trained = (self.trained)(norm.weight);
                if trained || self.needed.contains(&node.reads[0]) {
                    let x = node.reads[0];
                    let (d_x, write) = self.gradient(x);
                    let op = Op::NormBackward { norm, trained, write };
                    self.emit(op, node.site, &[x, d_y], &[d_x]);
                }
                self.residual(node, d_y);
            }
            Op::Scale { factor } => {
                if self.needed.contains(&node.reads[0]) {
                    self.emit(Op::Scale { factor }, node.site, &[d_y], &[d_y]);
                }
            }
            Op::Dropout { dropout, .. } => self.dropout(node, dropout, d_y),
            Op::LowRank(group) => self.low_rank(node, group, d_y),
            Op::ShortRows(group) => self.short_rows(node, group, d_y),
            Op::Rope { attention } => {
                let (d_x, _) = self.gradient(node.reads[0]);
                self.emit(Op::RopeBackward { attention }, node.site, &[d_y], &[d_x]);
            }
            Op::HeadNorms { norms, attention } => {
                let (raw, trained) = (node.reads[0], (self.trained)(norms.weight));
                let op = Op::HeadNormsBackward { norms, attention, trained };
                self.emit(op, node.site, &[raw, d_y], &[d_y]);
                self.gradients.insert(raw, d_y);
            }
            Op::Attention { attention, dropout } => {
                let (qkv, [output, logsumexp]) = (node.reads[0], [node.writes[0], node.writes[1]]);
                let (d_qkv, _) = self.gradient(qkv);
                let op = Op::AttentionBackward { attention, dropout };
                self.emit(op, node.site, &[qkv, output, logsumexp, d_y], &[d_qkv]);
            }
            Op::Activation(mlp) => {
                let (x, y) = (node.reads[0], node.writes[0]);
                let (d_x, _) = self.gradient(x);
                let again = self.graph.add(self.graph.values[y]);
                self.again.insert(y, again);
                self.emit(Op::ActivationBackward(mlp), node.site, &[x, d_y], &[d_x, again]);
                self.flush();
            }
            Op::Embed { weight } | Op::Positions { weight } if !(self.trained)(weight) => {}
            Op::Positions { weight } => {
                self.emit(Op::PositionsBackward { weight }, node.site, &[d_y], &[]);
            }
            Op::Embed { weight } => {
                let clear = self.written.insert(weight);
                self.emit(Op::EmbedBackward { weight, clear }, node.site, &[d_y], &[]);
            }
            _ => self.check(false, "a node is not of a forward pass"),
        }
    }

    fn linear(&mut self, node: &Node, weight: WeightId, bias: Option<WeightId>, d_y: ValueId) {
        let x = node.reads[0];
        if self.needed.contains(&x) {
            let (d_x, write) = self.gradient(x);
            self.emit(Op::LinearInput { weight, write }, node.site, &[d_y], &[d_x]);
        }
        if let Some(bias) = bias.filter(|&bias| (self.trained)(bias)) {
            self.emit(Op::BiasBackward { bias }, node.site, &[d_y], &[]);
        }
        if (self.trained)(weight) {
            self.late.push(Late { of: LateOf::Linear(weight), d_y, x, site: node.site });
            self.flush();
        }
        self.residual(node, d_y);
    }

    fn dropout(&mut self, node: &Node, dropout: Dropout, d_y: ValueId) {
        if self.needed.contains(&node.reads[0]) {
            let (d_x, write) = self.gradient(node.reads[0]);
            self.emit(Op::Dropout { dropout, write }, node.site, &[d_y], &[d_x]);
        }
        self.residual(node, d_y);
    }

    /// A sum passes its gradient on, to a node's second read, as it is.
    fn residual(&mut self, node: &Node, d_y: ValueId) {
        if let Some(&residual) = node.reads.get(1)
            && self.needed.contains(&residual)
        {
            let before = self.gradients.insert(residual, d_y);
            self.check(before.is_none(), "a residual's gradient is begun by the sum that ends it");
        }
    }

    /// The gradient by y passes on as it is, to the product that y comes from.
    fn low_rank(&mut self, node: &Node, group: LowRankGroup, d_y: ValueId) {
        let z = node.reads[0];
        if self.needed.contains(&z) {
            let (d_z, _) = self.gradient(z);
            self.sums.insert(z, d_y);
            self.emit(Op::LowRankInput(group), node.site, &[d_y], &[d_z]);
        }
    }

    /// `d_z` is the gradient by what A gives before it is scaled: the node that wrote it has scaled it.
    fn short_rows(&mut self, node: &Node, group: LowRankGroup, d_z: ValueId) {
        let (x, z) = (node.reads[0], node.writes[0]);
        if self.needed.contains(&x) {
            let (d_x, write) = self.gradient(x);
            self.emit(Op::ShortRowsInput { group, write }, node.site, &[d_z], &[d_x]);
        }
        let trained = group.weights().filter(|&weight| (self.trained)(weight)).count();
        self.check(trained % (2 * group.count) == 0, "an adapter is trained in part");
        let Some(&d_sum) = self.sums.get(&z).filter(|_| trained > 0) else { return };
        let of = LateOf::LowRank(group, [d_sum, z]);
        self.late.push(Late { of, d_y: d_z, x, site: node.site });
        self.flush();
    }

    /// Writes the weight gradients whose inputs are there: an activation's backward node computes the
    /// activation's output again, all else is kept.
    fn flush(&mut self) {
        for late in std::mem::take(&mut self.late) {
            let Some(x) = self.back(late.x) else {
                self.late.push(late);
                continue;
            };
            match late.of {
                LateOf::Linear(weight) => {
                    let write = self.weight_write(weight);
                    let op = Op::LinearWeight { weight, write };
                    self.emit(op, late.site, &[late.d_y, x], &[]);
                }
                LateOf::LowRank(group, [d_sum, z]) => {
                    let write = self.weight_write(group.a);
                    let op = Op::LowRankWeights { group, write };
                    self.emit(op, late.site, &[late.d_y, x, d_sum, z], &[]);
                }
            }
        }
    }

    /// A value of the forward pass where the backward pass reads it; none while it has to wait for that.
    fn back(&mut self, value: ValueId) -> Option<ValueId> {
        if let Some(&again) = self.again.get(&value) {
            return Some(again);
        }
        let Some(Node { op, reads, site, .. }) = self.dropped.get(&value).cloned() else {
            return (!self.returns(value)).then_some(value);
        };
        let source = self.back(reads[0])?;
        let again = self.graph.add(self.graph.values[value]);
        self.emit(op, site, &[source], &[again]);
        self.again.insert(value, again);
        Some(again)
    }

    /// Whether the backward pass computes a value again.
    fn returns(&self, value: ValueId) -> bool {
        self.gated.contains(&value) && self.needed.contains(&value)
    }
}
