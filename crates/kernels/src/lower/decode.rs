//! The plans of decoded rows: one token, the drawing of the next one, and batched rows.

use super::infer::{BatchedRows, DRAW_SLOTS, Inference, LIKELIEST_OFFSET, SampleChoices};
use super::{Lowering, PassInputs, PassRows};
use crate::error::Result;
use crate::graph::{Node, Op, ValueId};
use crate::kernels as k;
use crate::layout::{
    CacheLayout, DecodeLayouts, DecodeRequest, DecodeRows, attention_shape, decode_layouts,
};
use crate::plan::{Buffer, Builder, Launch, Phase, Slice};
use std::ops::Range;

mod nodes;
#[cfg(test)]
mod tests;

/// Bytes of a row of [`Buffer::Choices`].
pub const CHOICE_BYTES: u64 = size_of::<crate::plan::RowChoice>() as u64;

impl<'a> Inference<'a> {
    /// The longest text for which [`InferencePlans::short_context`] is.
    pub(super) fn short_context_keys(&self) -> usize {
        let keys = |node: &Node| match node.op {
            Op::Attention { attention, .. } => {
                Some(k::short_context_keys(self.caps, attention_shape(attention)))
            }
            _ => None,
        };
        self.graph.nodes.iter().filter_map(keys).min().unwrap_or(0)
    }

    /// What decodes rows by some of the nodes, over texts of up to `keys` tokens.
    fn layouts(
        &self,
        nodes: Range<usize>,
        rows: DecodeRows,
        outside: Option<ValueId>,
        keys: usize,
    ) -> Result<DecodeLayouts> {
        decode_layouts(&DecodeRequest {
            caps: self.caps,
            graph: &self.graph,
            nodes,
            outside,
            matrices: self.matrices(),
            rows,
            cache: CacheLayout { keys, ..self.cache },
        })
    }

    /// Some nodes of one decoded row, of a text of up to `keys` tokens.
    fn one(&'a self, nodes: Range<usize>, keys: usize) -> Result<(Lowering<'a>, DecodeLayouts)> {
        let hidden = self.graph.last_hidden();
        let layouts = self.layouts(nodes, DecodeRows::One, Some(hidden), keys)?;
        let rows = PassRows::One(CacheLayout { keys, ..self.cache });
        let builder = Builder::new(self.caps, Phase::Decode, 1, Buffer::DecodeStep);
        let token = Slice::new(Buffer::Token, 0, 4);
        let last = Some((hidden, self.hidden(Buffer::LastHidden, 1)));
        let mut lowering =
            self.lowering((&self.graph, 0..0, last), builder, rows, self.inputs(token));
        lowering.place_decoded(&layouts)?;
        Ok((lowering, layouts))
    }

    /// [`Buffer::Token`] through all layers to [`Buffer::LastHidden`], of a text of up to `keys` tokens.
    pub(super) fn decode(&self, keys: usize) -> Result<Builder<'_>> {
        let (mut lowering, layouts) = self.one(0..self.graph.layers_end, keys)?;
        let mut layers: Vec<Range<usize>> = vec![];
        for nodes in layouts.nodes.chunk_by(|a, b| a.site.layer == b.site.layer) {
            let start = lowering.builder.dispatched();
            nodes.iter().try_for_each(|node| lowering.decoded(node))?;
            if nodes[0].site.layer.is_some() {
                layers.push(start..lowering.builder.dispatched());
            }
        }
        let angles = layouts.angles.map(|angles| lowering.place(angles)).transpose()?;
        let mut builder = lowering.builder;
        builder.share_layers(&layers, angles);
        Ok(builder)
    }

    /// Batched rows.
    fn batched(&'a self, of: BatchedRows) -> Result<(Lowering<'a>, DecodeLayouts)> {
        let (BatchedRows::OfTexts(rows) | BatchedRows::OfOne(rows)) = of;
        let builder = Builder::new(self.caps, Phase::Decode, rows, Buffer::BatchStep);
        let words = |buffer| Slice::new(buffer, 0, rows as u64 * 4);
        let one_text = matches!(of, BatchedRows::OfOne(_));
        let short = self.short_context_keys();
        let keys = if self.shape.capacity <= short { short } else { self.cache.keys };
        let nodes = 0..self.graph.nodes.len();
        let layouts = self.layouts(nodes, DecodeRows::Batched(rows), None, keys)?;
        let over = PassRows::Batched { cache: CacheLayout { keys, ..self.cache }, one_text };
        let documents = words(Buffer::BatchDocuments);
        let inputs = PassInputs { documents, ..self.inputs(words(Buffer::BatchTokens)) };
        let mut lowering = self.lowering((&self.graph, 0..0, None), builder, over, inputs);
        lowering.place_decoded(&layouts)?;
        Ok((lowering, layouts))
    }

    /// [`Buffer::BatchTokens`] through all layers, and a token drawn for each.
    pub(super) fn decode_batched(&'a self, of: BatchedRows) -> Result<Builder<'a>> {
        let (mut lowering, layouts) = self.batched(of)?;
        layouts.nodes.iter().try_for_each(|node| lowering.decoded(node))?;
        lowering.cap_logits()?;
        let (logits, mut builder) = (lowering.logits(), lowering.builder);
        let (vocabulary, rows) = (self.params.architecture.vocab_size, builder.tokens);
        let kernel = builder.kernel(k::SampleSeveral { vocabulary, rows })?;
        let words = |buffer, each: usize| Slice::new(buffer, 0, (rows * each * 4) as u64);
        let launch = Launch::new("sample", kernel)
            .bind("logits", logits)
            .bind("seen", words(Buffer::BatchSeen, vocabulary.div_ceil(32)))
            .bind("token", words(Buffer::BatchTokens, 1))
            .bind("drawn", words(Buffer::BatchDrawn, 2 * DRAW_SLOTS))
            .bind("documents", words(Buffer::BatchDocuments, 1))
            .bind("choices", Slice::new(Buffer::Choices, 0, rows as u64 * CHOICE_BYTES));
        builder.dispatch(launch.flops(10.0 * (rows * vocabulary) as f64))?;
        Ok(builder)
    }

    /// [`Buffer::LastHidden`] to the next [`Buffer::Token`].
    pub(super) fn sample(&self, choices: SampleChoices) -> Result<Builder<'_>> {
        let (mut lowering, layouts) =
            self.one(self.graph.layers_end..self.graph.nodes.len(), self.cache.keys)?;
        layouts.nodes.iter().try_for_each(|node| lowering.decoded(node))?;
        lowering.cap_logits()?;
        let vocabulary = self.params.architecture.vocab_size;
        let logits = lowering.logits();
        let mut builder = lowering.builder;
        let options = Slice::new(Buffer::Sampling, 0, 32);
        if choices.likeliest > 0 {
            let count = choices.likeliest as u64;
            let kernel = builder.kernel(k::TopLogits { vocabulary, count: choices.likeliest })?;
            let top = Slice::new(Buffer::Drawn, LIKELIEST_OFFSET, DRAW_SLOTS as u64 * count * 8);
            let flops = (4 + 3 * choices.likeliest) as f64 * vocabulary as f64;
            let launch = Launch::new("likeliest", kernel)
                .bind("logits", logits)
                .bind("top", top)
                .bind("options", options);
            builder.dispatch(launch.flops(flops))?;
        }
        let kernel = builder.kernel(k::Sample { vocabulary, biased: choices.biased })?;
        let bias = Slice::new(Buffer::Bias, 0, vocabulary as u64 * 4);
        let launch = Launch::new("sample", kernel)
            .bind("logits", logits)
            .bind("seen", Slice::new(Buffer::Seen, 0, vocabulary.div_ceil(32) as u64 * 4))
            .bind("token", Slice::new(Buffer::Token, 0, 4))
            .bind("drawn", Slice::new(Buffer::Drawn, 0, DRAW_SLOTS as u64 * 8))
            .bind("options", options)
            .bind_some("bias", choices.biased.then_some(bias));
        builder.dispatch(launch.flops(10.0 * vocabulary as f64))?;
        Ok(builder)
    }
}
