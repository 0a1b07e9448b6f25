//! From nodes of a [`Graph`] to dispatches: for many rows of a batch, for a chunk of a prompt over a
//! key-value cache, or for one decoded row. One file per operation.

mod attention;
mod checksum;
mod decode;
mod dropout;
mod embed;
mod gate;
mod gradients;
mod halves;
mod head;
mod infer;
mod initialize;
mod linear;
mod low_rank;
mod norm;
mod parts;
mod rope;
mod row;
mod several;
mod train;

pub use checksum::{CHECKSUM_BYTES, checksum_plan};
pub use infer::{
    CacheShape, InferenceOptions, InferencePlans, LIKELIEST, LIKELIEST_OFFSET, Probe,
    SampleChoices, SeveralPlans, SeveralRows, inference_plans, probe_plan, sample_plan,
    several_plans,
};
pub use initialize::{OPTIONS_STRIDE, initialize_plan};
pub use several::CHOICE_BYTES;
#[cfg(any(test, feature = "testing"))]
pub use train::train_plans_of;
pub use train::{TrainChoices, TrainPlans, train_plans};
#[cfg(feature = "testing")]
pub use {crate::layout::attention_shape, attention::cache_bytes};

use crate::arch::WeightId;
use crate::error::{Error, Result};
use crate::graph::{Graph, Node, Op, Site, ValueId};
use crate::kernels::{Objective, WeightFormat};
use crate::layout::Cache;
use crate::params::Params;
use crate::plan::{Buffer, Builder, Slice};

/// What nodes read besides values and weights.
#[derive(Clone, Copy, Debug)]
struct Inputs {
    tokens: Slice,
    /// Starts of documents, and where a batch trains their ends.
    documents: Slice,
    /// Positions in the tables of rotary angles.
    positions: usize,
}

/// What a plan covers at a time.
#[derive(Clone, Copy, Debug)]
enum Rows {
    /// A batch whose loss is computed `logits` rows at a time; training minimises `objective`.
    Batch { batch: crate::plan::BatchLayout, logits: usize, objective: Objective },
    /// A chunk of a prompt over the cache.
    Chunk(Cache),
    /// One decoded row over the cache.
    One(Cache),
    /// The rows of whole texts, each a document, whose keys and values go to the cache of all: by `places`, for each row
    /// its number less the row of the cache, which wraps.
    Texts { cache: Cache, places: Slice },
    /// Decoded rows of texts of their own, with one cache for all of them, or of the text of the model's cache.
    Several { cache: Cache, shared: bool },
}

/// Turns nodes into the dispatches of one plan.
struct Lowering<'a> {
    graph: &'a Graph,
    params: &'a Params,
    builder: Builder<'a>,
    rows: Rows,
    inputs: Inputs,
    /// How matrices are read.
    weights: WeightFormat,
    /// Products read matrices from [`Buffer::Mirror`], where their rows are of vectors, and may round operands to f16.
    mirrored: bool,
    /// Whether attention's backward pass may be by products. Then it has room for a limited number of tiles.
    by_products: bool,
    /// By value whether it lies in f16; empty: none does.
    halves: Vec<bool>,
    /// Layout of gradients and optimizer state.
    state: &'a Params,
    values: Vec<Option<Slice>>,
    waiting: parts::Waiting,
}

impl Lowering<'_> {
    fn nodes(&mut self, nodes: &[Node]) -> Result<()> {
        nodes.iter().try_for_each(|node| self.node(node))?;
        self.sum_products()?;
        self.sum_waiting()
    }

    fn node(&mut self, node: &Node) -> Result<()> {
        match node.op {
            Op::Embed { weight } => {
                let rows = self.written(node, 0)?;
                self.embed(&node.site.to_string(), weight, rows, None)
            }
            Op::Positions { weight } => self.positions(node, weight),
            Op::Norm(norm) => self.norm(node, norm),
            Op::Linear { weight, bias } => self.linear(node, weight, bias),
            Op::Scale { factor } => self.scale(node, factor),
            Op::Dropout { dropout, write } => self.dropout(node, dropout, write),
            Op::LowRank(low) => self.low_rank(node, low),
            Op::LowRankInput(low) => self.low_rank_input(node, low),
            Op::LowRankWeight { low, write } => self.low_rank_weight(node, low, write),
            Op::HeadNorms { norms, attention } => self.head_norms(node, norms, attention),
            Op::HeadNormsBackward { norms, attention, trained } => {
                self.head_norms_backward(node, norms, attention, trained)
            }
            Op::Rope { attention } => self.rope(node, attention, true),
            Op::Attention { attention, dropout } => self.attention(node, attention, dropout),
            Op::Gate(gate) => self.gate(node, gate),
            Op::Head { weight } => self.head(node, weight),
            Op::NormLinear { .. } | Op::NormLinearGate { .. } | Op::NormLinearRope { .. } => {
                Err(Error::internal(format!("{} is of decoded rows", node.site)))
            }
            Op::HeadBackward { weight, trained } => self.head_backward(node, weight, trained),
            Op::LinearInput { weight, write } => self.linear_input(node, weight, write),
            Op::LinearWeight { weight, write } => self.linear_weight(node, weight, write),
            Op::BiasBackward { bias } => self.bias_gradient(node, bias),
            Op::NormBackward { norm, trained, write } => {
                self.norm_backward(node, norm, trained, write)
            }
            Op::RopeBackward { attention } => self.rope(node, attention, false),
            Op::AttentionBackward { attention, dropout } => {
                self.attention_backward(node, attention, dropout)
            }
            Op::GateBackward(gate) => self.gate_backward(node, gate),
            Op::EmbedBackward { weight, clear } => self.embed_backward(node, weight, clear),
            Op::PositionsBackward { weight } => self.positions_backward(node, weight),
        }
    }

    /// Where a value is that a node reads.
    fn read(&self, node: &Node, index: usize) -> Slice {
        let value = node.reads[index];
        self.values[value].unwrap_or_else(|| panic!("{} is read before it is written", node.site))
    }

    /// Where a value is that a node writes: an activation, made at the first write.
    fn written(&mut self, node: &Node, index: usize) -> Result<Slice> {
        self.value(node.writes[index])
    }

    fn value(&mut self, id: ValueId) -> Result<Slice> {
        if let Some(slice) = self.values[id] {
            return Ok(slice);
        }
        let value = self.graph.values[id];
        let columns = if self.in_halves(id) { value.columns / 2 } else { value.columns };
        let slice = self.tensor(&value.to_string(), columns)?;
        self.values[id] = Some(slice);
        Ok(slice)
    }

    /// Whether a value lies in f16, two elements to a word.
    fn in_halves(&self, id: ValueId) -> bool {
        self.halves.get(id).is_some_and(|half| *half)
    }

    fn bind(&mut self, id: ValueId, slice: Slice) {
        self.values[id] = Some(slice);
    }

    /// An activation of one row per token.
    fn tensor(&mut self, what: &str, columns: usize) -> Result<Slice> {
        self.builder.tensor(what, self.builder.tokens as u64 * columns as u64)
    }

    fn hidden(&self) -> usize {
        self.params.architecture.hidden
    }

    /// A part of a weight in a set of shards that has the weights' layout.
    fn part(&self, weight: WeightId, part: usize, set: fn(usize) -> Buffer) -> Slice {
        part_of(self.params, weight, part, set)
    }

    /// A part of a weight's gradient.
    fn gradient(&self, weight: WeightId, part: usize) -> Slice {
        part_of(self.state, weight, part, Buffer::Gradients)
    }

    /// A weight of one part.
    fn whole(&self, weight: WeightId) -> Slice {
        self.part(weight, 0, Buffer::Weights)
    }
}

fn part_of(params: &Params, weight: WeightId, part: usize, set: fn(usize) -> Buffer) -> Slice {
    let matrix = &params.matrices[weight];
    let part = &matrix.parts[part];
    Slice::new(set(part.shard), part.offset as u64 * 4, (part.rows * matrix.cols) as u64 * 4)
}

/// A label of one of the dispatches of a node.
fn label(site: Site, what: &str) -> String {
    format!("{site} {what}")
}
