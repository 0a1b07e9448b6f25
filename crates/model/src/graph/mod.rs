//! What a model computes, as a list of nodes over named values: [`build`] writes the forward pass,
//! [`differentiate`] adds the backward pass, [`remat`] computes activations again. Everything that runs a
//! model is lowered from these lists.

mod build;
mod differentiate;
mod remat;

pub use build::{build, build_captured, build_intervened, build_training};
pub use differentiate::{differentiate, differentiate_states};
pub use remat::remat;

use crate::arch::{Attention, HeadNorms, LowRankGroup, Norm, WeightId};
use crate::config::Activation;
use crate::format::WriteMode;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Index into [`Graph::values`].
pub type ValueId = usize;

/// A tensor of one row per token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    pub name: &'static str,
    /// Holds the loss's gradient by the value of this name.
    pub gradient: bool,
    pub columns: usize,
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.name, if self.gradient { " gradient" } else { "" })
    }
}

/// The place of a node in the model: what its dispatches are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    pub layer: Option<usize>,
    pub what: &'static str,
    /// A part of it, if it is one.
    pub part: &'static str,
}

impl Site {
    pub const fn new(layer: Option<usize>, what: &'static str) -> Self {
        Self { layer, what, part: "" }
    }

    /// A part of what the node does.
    pub const fn part(self, part: &'static str) -> Self {
        Self { part, ..self }
    }
}

impl From<Site> for String {
    fn from(site: Site) -> Self {
        site.to_string()
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.layer {
            Some(layer) => write!(f, "layer {layer} {}{}", self.what, self.part),
            None => write!(f, "{}{}", self.what, self.part),
        }
    }
}

/// What one of the dispatches of a node is called.
pub fn label(site: Site, what: &str) -> String {
    format!("{site} {what}")
}

/// Width of a feed-forward block, its activation, and whether that gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MlpActivation {
    pub width: usize,
    pub activation: Activation,
    pub gated: bool,
}

/// What training leaves out at a place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// The share of it.
    pub rate: f64,
    /// The number of the place, which has masks of its own: that of a module among those of the adapter, or one
    /// of `Dropout::of_model`.
    pub place: usize,
}

impl Dropout {
    /// Dropout of the model itself: of its embeddings, or of one of `kinds` places of a layer.
    fn of_model(rate: f64, layer: Option<usize>, kind: usize) -> Self {
        let number = layer.map_or(0, |layer| 1 + layer * Self::KINDS + kind);
        Self { rate, place: Self::MODEL + number }
    }

    /// What a layer leaves out: probabilities, then of what attention and the feed-forward block add.
    const KINDS: usize = 3;
    /// Places from here on are the model's.
    const MODEL: usize = 1 << 16;
}

/// Where [`Op::Intervene`] changes what a model computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterventionSite {
    /// The state of the residual stream after this many layers: 0 is the embedding.
    Residual(usize),
    /// What the heads of a layer's attention leave for its output product.
    Heads(usize),
    /// What a layer's attention adds to the stream.
    Attention(usize),
    /// What a layer's feed-forward block adds to the stream.
    Mlp(usize),
}

impl InterventionSite {
    const KINDS: usize = 4;

    /// Its number among those of a model.
    pub const fn number(self) -> usize {
        match self {
            Self::Residual(layers) => Self::KINDS * layers,
            Self::Heads(layer) => Self::KINDS * layer + 1,
            Self::Attention(layer) => Self::KINDS * layer + 2,
            Self::Mlp(layer) => Self::KINDS * layer + 3,
        }
    }

    /// How many sites a model of `layers` layers has.
    pub const fn count(layers: usize) -> usize {
        Self::Residual(layers).number() + 1
    }
}

/// What [`Op::Capture`] keeps of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Captured {
    /// The state of the residual stream after some number of layers, up to all of them.
    Residual,
    /// What attention, or the feed-forward block, adds to the stream.
    AttentionOutput,
    Mlp,
    /// What products of attention give, before norms of heads and rotation.
    Query,
    Key,
    Value,
    /// Probabilities of attention: of all heads, by position and key.
    Attention,
}

/// An operation. Reads and writes are those of [`Node`], in this order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Op {
    /// → rows.
    Embed { weight: WeightId },
    /// rows, to which each position's row of the weight is added in place.
    Positions { weight: WeightId },
    /// x → y, plus a second read if there is one.
    Norm(Norm),
    /// A linear layer: x → y = x · weightᵀ, plus a bias and a second read if there are any. Prose calls it a product.
    /// Its kernel is `matmul_t` for many rows and `matvec` for one.
    Linear { weight: WeightId, bias: Option<WeightId> },
    /// rows, multiplied in place.
    Scale { factor: f64 },
    /// x → x with a share of its elements left out, plus a second read if there is one; or the same of gradients.
    Dropout { dropout: Dropout, write: WriteMode },
    /// x, changed in place by the interventions at a site; or x, residual → their sum, x changed so.
    Intervene { site: InterventionSite },
    /// x → the columns from `first` on of the captured tensor of this number; of [`Captured::Attention`] what
    /// [`Op::Attention`] read and its logsumexp.
    Capture { what: Captured, index: usize, first: usize, columns: usize },
    /// x → z, the short rows of a group's modules beside each other: scale · x · Aᵀ of each.
    ShortRows(LowRankGroup),
    /// z, y → y, to whose columns of each module z · Bᵀ is added in place.
    LowRank(LowRankGroup),
    /// qkv → qkv with each head's queries and keys normed.
    HeadNorms { norms: HeadNorms, attention: Attention },
    /// qkv → qkv rotated, in place where both have one layout. Nothing else reads qkv.
    Rope { attention: Attention },
    /// qkv → output, logsumexp. With dropout a query leaves out some of the keys that it attends to.
    Attention { attention: Attention, dropout: Option<Dropout> },
    /// gate | up → activate(gate) · up, or up → activate(up).
    Activation(MlpActivation),
    /// x → logits, or their loss.
    Head { weight: WeightId },
    /// x → d_x, if it is needed: logits, loss and the gradients of the head, a chunk of rows at a time.
    HeadBackward { weight: WeightId, trained: bool },
    /// d_y → d_x.
    LinearInput { weight: WeightId, write: WriteMode },
    /// d_y, x → the weight's gradient.
    LinearWeight { weight: WeightId, write: WriteMode },
    /// d_y → scale · d_y · B of each module beside each other: the gradient by what A gives before it is scaled.
    LowRankInput(LowRankGroup),
    /// That → d_x, the sum of all modules' products with A.
    ShortRowsInput { group: LowRankGroup, write: WriteMode },
    /// That, x, d_y, z → the gradients of each A and each B.
    LowRankWeights { group: LowRankGroup, write: WriteMode },
    /// d_y → the bias's gradient.
    BiasBackward { bias: WeightId },
    /// x, d_y → d_x, and the weight's gradient where it is trained.
    NormBackward { norm: Norm, trained: bool, write: WriteMode },
    /// qkv, d_qkv → d_qkv in place, and the weights' gradients where they are trained.
    HeadNormsBackward { norms: HeadNorms, attention: Attention, trained: bool },
    /// d_qkv, rotated back in place.
    RopeBackward { attention: Attention },
    /// qkv, output, logsumexp, d_output → d_qkv.
    AttentionBackward { attention: Attention, dropout: Option<Dropout> },
    /// What [`Op::Activation`] read, d_y → its gradient, and what [`Op::Activation`] gave.
    ActivationBackward(MlpActivation),
    /// d_rows → the weight's gradient, which is cleared first unless another node has written it.
    EmbedBackward { weight: WeightId, clear: bool },
    /// d_rows → the gradient of [`Op::Positions`]'s weight.
    PositionsBackward { weight: WeightId },
}

/// An operation on values.
#[derive(Clone, Debug, PartialEq)]
pub struct Node<O = Op> {
    pub op: O,
    pub reads: Vec<ValueId>,
    pub writes: Vec<ValueId>,
    pub site: Site,
}

/// Nodes in the order in which they run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    pub values: Vec<Value>,
    pub nodes: Vec<Node>,
    /// The first node after the last layer: the final norm.
    pub layers_end: usize,
    /// The first node of the backward pass.
    pub backward: usize,
}

impl Graph {
    fn value(&mut self, name: &'static str, columns: usize) -> ValueId {
        self.add(Value { name, gradient: false, columns })
    }

    fn add(&mut self, value: Value) -> ValueId {
        self.values.push(value);
        self.values.len() - 1
    }

    /// The node that leaves hidden state `index`, counted as transformers does: 0 is the embedding and i the output of
    /// i layers. The last layer's output is taken after the final norm.
    pub fn hidden_state(&self, index: usize) -> Option<usize> {
        let layer = |node: &Node| node.site.layer;
        let before = &self.nodes[..self.layers_end];
        if before.last().and_then(layer).is_none_or(|last| index > last) {
            let normed = matches!(self.nodes[self.layers_end].op, Op::Norm(_));
            return if normed { Some(self.layers_end) } else { self.layers_end.checked_sub(1) };
        }
        before.iter().rposition(|node| layer(node) == index.checked_sub(1))
    }

    /// The attention of a layer.
    pub fn attention(&self, layer: usize) -> Option<(usize, Attention)> {
        self.nodes.iter().enumerate().find_map(|(index, node)| match node.op {
            Op::Attention { attention, .. } if node.site.layer == Some(layer) => {
                Some((index, attention))
            }
            _ => None,
        })
    }

    /// The node that alone reads what another one alone writes.
    pub fn only_reader(&self, value: ValueId) -> Option<&Node> {
        let touches = |node: &&Node| node.reads.contains(&value) || node.writes.contains(&value);
        let mut touching = self.nodes.iter().filter(touches);
        let (_, reader, more) = (touching.next()?, touching.next()?, touching.next());
        more.is_none().then_some(reader)
    }

    /// What the last layer leaves.
    pub fn last_hidden(&self) -> ValueId {
        self.nodes[self.layers_end - 1].writes[0]
    }
}

#[cfg(test)]
mod tests;
