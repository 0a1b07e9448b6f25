//! From nodes of a [`Graph`] to dispatches: for many rows of a batch, for a chunk of a prompt over a key-value cache,
//! or for decoded rows. One file per operation. `train`, `infer` and `decode` make the plans.

mod activation;
mod attention;
mod capture;
mod checksum;
mod decode;
mod dropout;
mod embed;
mod given;
mod head;
mod infer;
mod initialize;
mod intervene;
mod linear;
mod low_rank;
mod norm;
mod rope;
#[cfg(test)]
mod tests;
mod train;
#[cfg(test)]
mod untrained_tests;

pub use crate::layout::attention_shape;
pub use attention::cache_bytes;
pub use capture::{CaptureLayout, capture_columns};
pub use checksum::{CHECKSUM_BYTES, checksum_plan};
pub use decode::CHOICE_BYTES;
pub use given::{scale_plan, zero_plan};
pub use head::{scores, top_rows};
pub use infer::{
    ANY_INTERVENTIONS, BatchedPlans, BatchedRows, CacheShape, DRAW_SLOTS, Inference,
    InferenceOptions, InferencePlans, LIKELIEST_OFFSET, Probe, SampleChoices, inference_plans,
};
pub use initialize::{OPTIONS_STRIDE, initialize_plan};
pub use train::train_plans_of;
pub use train::{TrainChoices, TrainPlans, attribution_plan, train_plans};

use crate::arch::WeightId;
use crate::error::{Error, Result};
use crate::graph::{Graph, Node, Op, ValueId, label};
use crate::kernels::{Objective, PartialSums};
use crate::layout::{
    CacheLayout, Fusion, LaidNode, Layouts, Matrices, Request, SplitK, layouts, weight_part,
};
use crate::params::Params;
use crate::plan::{Buffer, Builder, Phase, Slice};
use std::ops::Range;
use std::rc::Rc;

/// What nodes read besides values and weights.
#[derive(Clone, Copy, Debug)]
struct PassInputs {
    tokens: Slice,
    /// Starts of documents, and where a batch trains their ends.
    documents: Slice,
    /// Positions in the tables of rotary angles.
    positions: usize,
}

/// The rows that a plan covers at a time, with what they read and write besides values.
#[derive(Clone, Copy, Debug)]
enum PassRows {
    /// A batch whose loss is computed `logits` rows at a time; training minimises `objective`.
    Batch { batch: crate::plan::BatchLayout, logits: usize, objective: Objective },
    /// Packed documents, whose keys and values nobody keeps.
    Documents,
    /// A chunk of a prompt over the cache.
    Chunk(CacheLayout),
    /// One decoded row over the cache.
    One(CacheLayout),
    /// The rows of whole texts. Each text is a document. Keys and values go to the batch's cache. `places` has for each
    /// row `row - cache row`, modulo 2^32.
    Texts { cache: CacheLayout, places: Slice },
    /// Several decoded rows. `one_text`: all are of the text in the model's cache. Else each is of a text of its own in
    /// the batch's cache.
    Batched { cache: CacheLayout, one_text: bool },
}

/// Turns nodes into the dispatches of one plan.
struct Lowering<'a> {
    graph: &'a Graph,
    params: &'a Params,
    builder: Builder<'a>,
    rows: PassRows,
    inputs: PassInputs,
    matrices: Matrices<'a>,
    /// Layout of gradients and optimizer state.
    state: &'a Params,
    /// The layouts of values, and which nodes are joined.
    layouts: Rc<Layouts<'a>>,
    /// The phase of the forward pass.
    phase: Phase,
    values: Vec<Option<Slice>>,
    /// Where what is captured goes.
    captured: CaptureLayout,
    /// The one row of a batch whose logits are asked for, with those that are computed with it; none: all.
    logit_row: Option<u32>,
}

impl<'a> Lowering<'a> {
    fn new(
        request: Request<'a>,
        mut builder: Builder<'a>,
        rows: PassRows,
        inputs: PassInputs,
    ) -> Self {
        let Request { graph, matrices, state, tokens, .. } = request;
        let layouts = layouts(request);
        let mut values = vec![None; layouts.values.len()];
        // Values of decoded rows are placed as `DecodeLayouts` say.
        if !matches!(rows, PassRows::One(_) | PassRows::Batched { .. }) {
            let bytes = layouts.bytes(tokens);
            for (id, place) in values.iter_mut().enumerate() {
                let home = layouts.home(id);
                *place = Some(Slice::new(Buffer::Virtual(home), 0, bytes[home]));
            }
            builder.reserve(bytes);
        }
        Self {
            graph,
            params: matrices.params,
            phase: builder.phase,
            builder,
            rows,
            inputs,
            matrices,
            state,
            layouts: Rc::new(layouts),
            values,
            captured: CaptureLayout::default(),
            logit_row: None,
        }
    }

    /// Lowers those of these nodes that the plan has.
    fn nodes(&mut self, nodes: Range<usize>) -> Result<()> {
        let layouts = Rc::clone(&self.layouts);
        let of = |laid: &&LaidNode| match laid {
            LaidNode::Node(index, _) => nodes.contains(index),
            LaidNode::ColumnSum(_) | LaidNode::ProductSum(_) => true,
        };
        layouts.nodes.iter().filter(of).try_for_each(|laid| self.laid(&layouts, laid))
    }

    fn laid(&mut self, layouts: &Layouts<'a>, laid: &LaidNode) -> Result<()> {
        self.builder.phase = match laid {
            LaidNode::Node(index, _) if *index < self.graph.backward => self.phase,
            _ => Phase::Backward,
        };
        match laid {
            LaidNode::Node(index, fusion) => self.node(&layouts.graph.nodes[*index], fusion),
            LaidNode::ColumnSum(index) => self.column_sum(&layouts.column_sums[*index]),
            LaidNode::ProductSum(index) => self.product_sum(*index),
        }
    }

    fn node(&mut self, node: &Node, fusion: &Fusion) -> Result<()> {
        if *fusion == Fusion::Absorbed {
            return Ok(());
        }
        match node.op {
            Op::Embed { weight } => {
                let rows = self.written(node, 0)?;
                self.embed(node.site, weight, rows, None)
            }
            Op::Positions { weight } => self.positions(node, weight),
            Op::Norm(norm) => self.norm(node, norm, fusion),
            Op::Linear { weight, bias } => self.linear(node, (weight, bias), fusion),
            Op::Scale { factor } => self.scale(node, factor),
            Op::Dropout { dropout, write } => self.dropout(node, dropout, write),
            Op::Intervene { site } => self.intervene(node, site),
            Op::Capture { what, index, first, columns } => {
                self.capture(node, (what, index), (first, columns))
            }
            Op::ShortRows(group) => self.short_rows(node, group),
            Op::LowRank(group) => self.low_rank(node, group),
            Op::LowRankInput(group) => self.low_rank_input(node, group),
            Op::ShortRowsInput { group, write } => self.short_rows_input(node, group, write),
            Op::LowRankWeights { group, write } => self.low_rank_weights(node, group, write),
            Op::HeadNorms { norms, attention } => self.head_norms(node, norms, attention),
            Op::HeadNormsBackward { norms, attention, .. } => {
                self.head_norms_backward(node, norms, attention, fusion)
            }
            Op::Rope { attention } => self.rope(node, attention, true, fusion),
            Op::Attention { attention, dropout } => self.attention(node, attention, dropout),
            Op::Activation(mlp) => self.activation(node, mlp, fusion),
            Op::Head { weight } => self.head(node, weight),
            Op::HeadBackward { weight, .. } => self.head_backward(node, weight, fusion),
            Op::LinearInput { weight, write } => self.linear_input(node, weight, write, fusion),
            Op::LinearWeight { weight, write } => self.linear_weight(node, weight, write, fusion),
            Op::BiasBackward { bias } => self.bias_gradient(node, bias),
            Op::NormBackward { norm, write, .. } => self.norm_backward(node, norm, write, fusion),
            Op::RopeBackward { attention } => self.rope(node, attention, false, fusion),
            Op::AttentionBackward { attention, dropout } => {
                self.attention_backward(node, (attention, dropout), fusion)
            }
            Op::ActivationBackward(mlp) => self.activation_backward(node, mlp, fusion),
            Op::EmbedBackward { weight, clear } => self.embed_backward(node, weight, clear),
            Op::PositionsBackward { weight } => self.positions_backward(node, weight),
        }
    }

    /// A value's place.
    fn place(&self, id: ValueId) -> Result<Slice> {
        let place = self.values.get(id).copied().flatten();
        place.ok_or_else(|| Error::internal(format!("value {id} has no place")))
    }

    /// Where a value is that a node reads.
    fn read<O>(&self, node: &Node<O>, index: usize) -> Result<Slice> {
        self.place(node.reads[index])
    }

    /// Where a node's second read is, if it has one.
    fn second<O>(&self, node: &Node<O>) -> Result<Option<Slice>> {
        node.reads.get(1).map(|&id| self.place(id)).transpose()
    }

    /// Where a value is that a node writes.
    fn written<O>(&self, node: &Node<O>, index: usize) -> Result<Slice> {
        self.value(node.writes[index])
    }

    /// A value's place. The value must fit a binding.
    fn value(&self, id: ValueId) -> Result<Slice> {
        let slice = self.place(id)?;
        if let (Buffer::Virtual(_), Some(value)) = (slice.buffer, self.graph.values.get(id)) {
            self.builder.check_tensor(&value.to_string(), slice.bytes)?;
        }
        Ok(slice)
    }

    /// A slice of a tensor that several nodes share.
    fn shared(&self, slice: Slice) -> Result<Slice> {
        let unknown = || Error::internal(format!("{slice:?} is of no shared tensor"));
        let tensor = self.layouts.shared(slice).ok_or_else(unknown)?;
        self.builder.check_tensor(tensor.what, tensor.bytes)?;
        Ok(slice)
    }

    /// The partial sums that a node adds up, if it does.
    fn summed(&self, fusion: &Fusion) -> Option<SplitK> {
        fusion.sum_of().and_then(|value| self.layouts.split_k(value))
    }

    /// Where a value is that a node reads, or its partial sums.
    fn read_parts(
        &self,
        node: &Node,
        index: usize,
        fusion: &Fusion,
    ) -> Result<(Slice, PartialSums)> {
        match self.summed(fusion) {
            Some(SplitK { slice, sums, .. }) => Ok((slice, sums)),
            None => Ok((self.read(node, index)?, PartialSums::WHOLE)),
        }
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
        weight_part(self.params, weight, part, set)
    }

    /// A part of a weight's gradient.
    fn gradient(&self, weight: WeightId, part: usize) -> Slice {
        weight_part(self.state, weight, part, Buffer::Gradients)
    }

    /// A weight of one part.
    fn whole(&self, weight: WeightId) -> Slice {
        self.part(weight, 0, Buffer::Weights)
    }
}
