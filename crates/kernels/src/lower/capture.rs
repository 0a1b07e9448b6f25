//! What a pass keeps of its layers for who looks into a model.

use super::{Inference, Lowering, PassRows};
use crate::arch::{Architecture, Attention, Layer};
use crate::caps::ALIGN;
use crate::error::{Error, Result};
use crate::graph::{self, Captured, Node};
use crate::kernels::{self as k, Constant};
use crate::plan::{Buffer, Launch, Plan, Range, Slice};
use std::rc::Rc;

/// Where captured tensors are in [`Buffer::Captured`], for a text of `tokens` tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureLayout {
    pub tokens: usize,
    pub slices: Vec<Slice>,
}

impl CaptureLayout {
    /// The layout for a text: each tensor has a row for each position, or for each head and position.
    pub fn new(architecture: &Architecture, captured: &[(Captured, usize)], tokens: usize) -> Self {
        let mut offset = 0;
        let slice = |&(what, layer): &(Captured, usize)| {
            let row = capture_columns(architecture, what, layer, tokens) as u64;
            let slice = Slice::new(Buffer::Captured, offset, tokens as u64 * row * 4);
            offset = (offset + slice.bytes).next_multiple_of(4 * ALIGN as u64);
            slice
        };
        Self { tokens, slices: captured.iter().map(slice).collect() }
    }

    /// Bytes of all tensors.
    pub fn bytes(&self) -> u64 {
        self.slices.last().map_or(0, |last| last.offset + last.bytes)
    }
}

/// Numbers of `what` for each position of a text of `tokens` tokens.
pub fn capture_columns(
    architecture: &Architecture,
    what: Captured,
    layer: usize,
    tokens: usize,
) -> usize {
    let attention = |of: fn(Attention) -> usize| {
        architecture.layers.get(layer).and_then(Layer::heads).map_or(0, of)
    };
    match what {
        Captured::Residual | Captured::AttentionOutput | Captured::Mlp => architecture.hidden,
        Captured::Query => attention(|of| of.width()),
        Captured::Key | Captured::Value => attention(|of| of.kv_heads * of.head_dim),
        Captured::Attention => attention(|of| of.heads) * tokens,
    }
}

impl Inference<'_> {
    /// The inference whose graph has what [`Self::capture_plan`] captures.
    pub fn capturing(mut self, captured: &[(Captured, usize)]) -> Self {
        self.graph = graph::build_captured(&self.params.architecture, captured);
        self
    }

    /// The plan of a chunk of a prompt into the cache, which leaves what is captured in [`Buffer::Captured`].
    ///
    /// # Errors
    /// As [`inference_plans`](super::inference_plans).
    pub fn capture_plan(
        &self,
        captured: &[(Captured, usize)],
        layout: CaptureLayout,
        slots: &[u64],
    ) -> Result<Plan> {
        let layers = self.params.architecture.layers.len();
        // The last state is captured after the layers.
        let last = captured.contains(&(Captured::Residual, layers));
        let nodes = 0..self.graph.layers_end + usize::from(last);
        let mut lowering = self.chunk(nodes.clone());
        lowering.captured = layout;
        lowering.nodes(nodes)?;
        Ok(lowering.builder.finish(slots))
    }
}

impl Lowering<'_> {
    /// Columns of rows, or how much each position attends to each, to the captured tensor of that number.
    pub(super) fn capture(
        &mut self,
        node: &Node,
        (what, index): (Captured, usize),
        (first, columns): (usize, usize),
    ) -> Result<()> {
        let none = || Error::internal(format!("{} captures into nothing", node.site));
        let to = self.captured.slices.get(index).copied().ok_or_else(none)?;
        if what == Captured::Attention {
            return self.capture_attention(node, to);
        }
        // A residual stream that a model has divided is given as the model's own.
        let stream = matches!(what, Captured::Residual | Captured::AttentionOutput | Captured::Mlp);
        let factor = self.params.architecture.stream_scale.filter(|_| stream).unwrap_or(1.0);
        let gradient = self.graph.values[node.reads[0]].gradient;
        let factor = Constant(if gradient { 1.0 / factor } else { factor });
        let stride = self.columns(node.reads[0]);
        let kernel = self.builder.kernel(k::CaptureForward { stride, first, columns, factor })?;
        let launch = Launch::new(node.site, kernel).bind("x", self.read(node, 0)?).bind("y", to);
        self.builder.dispatch(launch.flops((self.builder.tokens * columns) as f64))
    }

    /// Captures the probabilities of all heads, over the cache that the layer has just filled.
    fn capture_attention(&mut self, node: &Node, to: Slice) -> Result<()> {
        let (PassRows::Chunk(cache), Some(layer)) = (self.rows, node.site.layer) else {
            return Err(Error::internal("only chunks of a prompt keep probabilities"));
        };
        let none = || Error::internal(format!("{} has no attention", node.site));
        let attention = self.params.architecture.layers[layer].heads().ok_or_else(none)?;
        let keys = self.cache(node.site, attention, cache)?;
        let keys = self.expand(node.site, attention, cache, keys)?;
        let (query, logsumexp) = (self.read(node, 0)?, self.read(node, 1)?);
        let kernel =
            self.builder.kernel(k::AttentionShares { attention: self.cached(attention) })?;
        let (rows, tokens) = (self.builder.tokens, self.captured.tokens as u32);
        for head in 0..attention.heads {
            let probe = Range { row0: head as u32, rows: tokens, col0: 0, cols: 0 };
            let launch = Launch::new(node.site, Rc::clone(&kernel))
                .bind("query", query)
                .bind("keys", keys)
                .bind("documents", self.inputs.documents)
                .bind("lse", logsumexp)
                .bind("probabilities", to)
                .bind("probe", self.builder.range(probe));
            let flops = 2.0 * (rows * rows * attention.head_dim) as f64;
            self.builder.dispatch(launch.flops(flops))?;
        }
        Ok(())
    }
}
