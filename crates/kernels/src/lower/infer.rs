//! The inference plans: prefill of a chunk into the key-value cache, logits and loss of a chunk, decoding one token.

use super::{Lowering, PassInputs, PassRows};
use crate::arch::Architecture;
use crate::caps::{ALIGN, Capabilities, GpuClass};
use crate::error::{Error, ErrorCode, Result};
use crate::graph::{self, Graph, Node, Op, ValueId};
use crate::kernels::{self as k, Kernel, KernelSpec, KvCacheFormat, WeightFormat};
use crate::layout::{CacheLayout, Matrices, PassKind, Request, weight_part};
use crate::params::Params;
use crate::plan::{Buffer, Builder, Launch, Phase, Plan, PromptLayout, Slice};
use serde::Deserialize;
use std::num::NonZeroU32;
use std::ops::Range;

/// Everything that inference replays. All plans share the slots.
#[derive(Clone, Debug)]
pub struct InferencePlans {
    /// Rows of a chunk into the cache; leaves the last layer's output in [`Buffer::Hidden`].
    pub prefill: Plan,
    /// As [`Self::prefill`], for larger chunks. It reads texts with more than [`Self::room`] unread tokens.
    pub long_prefill: Option<Plan>,
    /// Logits of up to [`Self::logit_rows`] rows of [`Buffer::HeadInput`].
    pub logits: Plan,
    /// Loss of each of these rows, from the logits.
    pub loss: Plan,
    /// The last row of [`Buffer::Hidden`] to [`Buffer::LastHidden`].
    pub last_row: Plan,
    /// [`Buffer::Token`] through all layers to [`Buffer::LastHidden`], its keys and values appended.
    pub decode: Plan,
    /// As [`Self::decode`], for texts of up to [`Self::short_context_keys`] tokens, where other kernels are faster.
    pub short_context: Option<Plan>,
    pub short_context_keys: usize,
    /// [`Buffer::LastHidden`] to the next [`Buffer::Token`].
    pub sample: Plan,
    /// The matrices to [`Buffer::Packed`]; to be replayed when the weights have changed. Empty where the model
    /// holds them packed.
    pub pack: Plan,
    /// Buffers of packed matrices, and their bytes.
    pub packed: Vec<(Buffer, u64)>,
    /// Most rows of a prefill.
    pub chunk: usize,
    /// Rows that the buffers of a chunk have room for: those of [`Self::long_prefill`], if there is one.
    pub room: usize,
    pub logit_rows: usize,
    /// Rows of a layer's cache: no more than the sliding window and a chunk need.
    pub cache_rows: usize,
    pub shape: CacheShape,
}

impl InferencePlans {
    /// The plan that decodes texts of up to `tokens` tokens.
    pub fn decode_of(&self, tokens: usize) -> &Plan {
        self.short_context
            .as_ref()
            .filter(|_| tokens <= self.short_context_keys)
            .unwrap_or(&self.decode)
    }

    pub fn all(&self) -> Vec<&Plan> {
        let Self { prefill, logits, loss, last_row, decode, sample, pack, .. } = self;
        let plans = [prefill, logits, loss, last_row, decode, sample, pack];
        plans.into_iter().chain(&self.short_context).chain(&self.long_prefill).collect()
    }

    /// The plan that reads a chunk of a text that had `unread` unread tokens at first. It does not depend on other
    /// texts.
    pub fn prefill_of(&self, unread: usize) -> &Plan {
        self.long_prefill.as_ref().filter(|_| unread > self.room).unwrap_or(&self.prefill)
    }
}

/// Most bytes of logits at a time.
const LOGITS_BYTES: u64 = 32 << 20;
/// Most bytes of probabilities of attention that a chunk leaves.
const PROBABILITY_BYTES: u64 = 32 << 20;
/// Most rows of a chunk: enough to fill a GPU with the tiles of `linear`.
const CHUNK: usize = 512;
/// Most rows of a chunk of a longer text on a large GPU, which more rows keep busier. A shorter text would wait for kernels
/// that are made for more rows than it has.
const LONG_CHUNK: usize = 2048;
/// Most rows of a chunk on a CPU. More rows would not keep it busier.
const SOFTWARE_CHUNK: usize = 256;
/// Most rows of texts that are read together on a GPU: enough to keep a large one busy.
const TEXT_ROWS: usize = 1024;
/// Draws that [`Buffer::Drawn`] has room for, for each row. So this many passes of a submit are read back at once.
pub const DRAW_SLOTS: usize = 16;
/// Where [`Buffer::Drawn`] has the likeliest tokens of each pass, after the draws. Every device can bind this offset.
pub const LIKELIEST_OFFSET: u64 = 256;
const _: () = assert!(DRAW_SLOTS as u64 * 8 <= LIKELIEST_OFFSET);

/// What a key-value cache has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheShape {
    /// Texts that it holds, one after the other.
    pub sequences: usize,
    /// Most tokens of each.
    pub capacity: usize,
}

/// One text.
impl From<usize> for CacheShape {
    fn from(capacity: usize) -> Self {
        Self { sequences: 1, capacity }
    }
}

/// What a step of decoding does besides drawing a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleChoices {
    /// [`Buffer::Bias`] is added to the logits that are drawn from.
    pub biased: bool,
    /// How many of the likeliest tokens [`Buffer::Drawn`] gets after the draws.
    pub likeliest: usize,
}

/// What is read back of a layer for who looks into a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Rows of a chunk in [`Buffer::Hidden`], of the hidden state with this number in [`Graph::hidden_state`].
    HiddenState(usize),
    /// How much the queries of a head attend to each key in this layer, in [`Buffer::Probabilities`].
    Attention(usize),
    /// What rows of [`Buffer::Logits`] say of their tokens, and this many of the likeliest tokens, in
    /// [`Buffer::Scores`].
    Scores(usize),
    /// Rows of packed documents in [`Buffer::Hidden`], as the last layer leaves them. They have no keys and values in the
    /// cache: each document is whole. [`Buffer::BatchDocuments`] says where it starts.
    Documents,
}

/// How a model infers: the options of `logits` and `loss`, part of those of `generate`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct InferenceOptions {
    /// How keys and values are kept: what they lose shows in the result.
    pub kv_cache: KvCacheFormat,
    /// How matrices are read: what they lose does, too. A model that holds them packed has them in its own
    /// format alone.
    pub weights: WeightFormat,
    /// The interventions on the way to the logits. Plans have a place for one wherever it may be. The session knows
    /// them by this number.
    #[serde(skip)]
    pub interventions: Option<NonZeroU32>,
}

/// Stands for whichever interventions a call has. Those of no call have this number.
pub const ANY_INTERVENTIONS: NonZeroU32 = NonZeroU32::MIN;

impl InferenceOptions {
    /// The options on which plans depend: with any interventions or none.
    pub fn form(self) -> Self {
        Self { interventions: self.interventions.map(|_| ANY_INTERVENTIONS), ..self }
    }
}

/// Rows after which the cache of a model with a sliding window begins again. It depends on nothing
/// that grows with a text: a longer one compiles nothing.
fn ring(architecture: &Architecture, chunk: usize) -> Option<usize> {
    let rows = k::ring_rows(architecture.window()?, chunk);
    (rows < architecture.positions).then_some(rows)
}

/// Whether a cache of this capacity may have texts with larger chunks.
fn has_long_chunks(caps: &Capabilities, architecture: &Architecture, capacity: usize) -> bool {
    // With larger chunks a ring would need that many more rows.
    let ring = architecture.window().is_some();
    capacity > LONG_CHUNK && !ring && !caps.software && caps.class() == GpuClass::LARGE
}

/// Compiles a model into the plans of inference, for texts of the shape's capacity: a RoPE table of
/// that length, and a cache of that length or of what a sliding window needs, if that is less. The
/// kernels do not depend on the capacity. A cache with room for a long text has further ones, for larger chunks of it.
///
/// # Errors
/// `limit-exceeded` when an activation, the cache or a kernel does not fit the device.
pub fn inference_plans(
    caps: &Capabilities,
    params: &Params,
    shape: impl Into<CacheShape>,
    options: InferenceOptions,
) -> Result<InferencePlans> {
    Inference::new(caps, params, shape.into(), options).plans()
}

/// Rows that are decoded together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchedRows {
    /// The newest row of each of this many texts, in a cache of their own.
    OfTexts(usize),
    /// This many rows of the text in the model's cache.
    OfOne(usize),
}

/// What decodes several rows.
#[derive(Debug)]
pub struct BatchedPlans {
    /// [`Buffer::BatchTokens`] through all layers, their keys and values appended, and a token drawn for each.
    pub pass: Plan,
    /// Whole texts into the cache, where they can be read together.
    pub texts: Option<Plan>,
    pub cache_rows: usize,
}

impl BatchedPlans {
    pub fn all(&self) -> Vec<&Plan> {
        std::iter::once(&self.pass).chain(&self.texts).collect()
    }
}

/// A model's inference over a cache: what its plans share.
#[derive(Debug)]
pub struct Inference<'a> {
    pub(super) caps: &'a Capabilities,
    pub(super) params: &'a Params,
    pub(super) shape: CacheShape,
    chunk: usize,
    /// Rows of the largest chunk.
    room: usize,
    logit_rows: usize,
    pub(super) cache: CacheLayout,
    weights: WeightFormat,
    /// The forward pass.
    pub(super) graph: Graph,
}

impl<'a> Inference<'a> {
    pub fn new(
        caps: &'a Capabilities,
        params: &'a Params,
        shape: CacheShape,
        options: InferenceOptions,
    ) -> Self {
        let CacheShape { sequences, capacity } = shape;
        let architecture = &params.architecture;
        let intervened = options.interventions.is_some();
        let build = if intervened { graph::build_intervened } else { graph::build };
        let graph = build(architecture);
        let binding = caps.limits.binding_bytes();
        let rows_in = |bytes: u64, columns: usize| (bytes.min(binding) / 4) as usize / columns;
        let layers = graph.nodes[..graph.layers_end].iter().flat_map(|node| &node.writes);
        let widest = layers.map(|&value| graph.values[value].columns).max().unwrap_or(1);
        let most = if caps.software { SOFTWARE_CHUNK } else { CHUNK };
        let fits = rows_in(binding, widest);
        let chunk = fits.clamp(1, most);
        let long = has_long_chunks(caps, architecture, capacity) && fits >= LONG_CHUNK;
        let room = if long { LONG_CHUNK } else { chunk };
        let logit_rows = rows_in(LOGITS_BYTES, architecture.vocab_size).clamp(1, chunk);
        let ring = ring(architecture, chunk);
        let rows = ring.map_or(capacity, |ring| ring.min(capacity));
        let keys = architecture.positions;
        let cache = CacheLayout { format: options.kv_cache, sequences, rows, ring, keys };
        let weights = options.weights;
        Self { caps, params, shape, chunk, room, logit_rows, cache, weights, graph }
    }

    /// Everything that inference of one text replays.
    ///
    /// # Errors
    /// As [`inference_plans`].
    pub fn plans(&self) -> Result<InferencePlans> {
        let prefill = self.prefill(self.chunk)?.finish(&[]);
        let long_prefill = if self.room > self.chunk {
            Some(self.prefill(self.room)?.finish(&prefill.slots))
        } else {
            None
        };
        let slots = &long_prefill.as_ref().unwrap_or(&prefill).slots;
        let logits = self.logits()?.finish(slots);
        let loss = self.loss()?.finish(&logits.slots);
        let last_row = self.last_row()?.finish(&loss.slots);
        let decode = self.decode(self.cache.keys)?.finish(&last_row.slots);
        let short_context_keys = self.short_context_keys();
        let merges = |kernel: &Kernel| matches!(kernel.spec, KernelSpec::AttentionDecodeMerge(_));
        let short_context = if short_context_keys > 0 && decode.kernels.iter().any(merges) {
            Some(self.decode(short_context_keys)?.finish(&decode.slots))
        } else {
            None
        };
        let slots = &short_context.as_ref().unwrap_or(&decode).slots;
        let sample = self.sample_plan(SampleChoices::default(), slots)?;
        let (pack, packed) = self.pack()?;
        Ok(InferencePlans {
            prefill,
            long_prefill,
            logits,
            loss,
            last_row,
            decode,
            short_context,
            short_context_keys,
            sample,
            pack,
            packed,
            chunk: self.chunk,
            room: self.room,
            logit_rows: self.logit_rows,
            cache_rows: self.cache.rows,
            shape: self.shape,
        })
    }

    /// The plan of [`InferencePlans::sample`] with further choices, beside plans that share `slots`.
    ///
    /// # Errors
    /// As [`inference_plans`].
    pub fn sample_plan(&self, choices: SampleChoices, slots: &[u64]) -> Result<Plan> {
        Ok(self.sample(choices)?.finish(slots))
    }

    /// The plan of a chunk of a prompt up to what `probe` asks for. It overwrites the cache of the layers before.
    ///
    /// # Errors
    /// As [`inference_plans`].
    pub fn probe_plan(&self, probe: Probe, slots: &[u64]) -> Result<Plan> {
        Ok(self.probe(probe)?.finish(slots))
    }

    /// The plans of several rows.
    ///
    /// # Errors
    /// As [`inference_plans`].
    pub fn batched_plans(&self, rows: BatchedRows, slots: &[u64]) -> Result<BatchedPlans> {
        let pass = self.decode_batched(rows)?.finish(slots);
        let texts = match self.texts(rows) {
            Ok(texts) => texts.map(|builder| builder.finish(&pass.slots)),
            // Texts are then read one after the other.
            Err(error) if error.code == ErrorCode::LimitExceeded => None,
            Err(error) => return Err(error),
        };
        Ok(BatchedPlans { pass, texts, cache_rows: self.cache.rows })
    }

    /// Nodes for a chunk of a prompt.
    pub(super) fn chunk(&'a self, nodes: Range<usize>) -> Lowering<'a> {
        self.chunk_to(self.graph.last_hidden(), nodes)
    }

    /// The nodes of a chunk, where [`Buffer::Hidden`] has another value than the last layer's output.
    fn chunk_to(&'a self, hidden: ValueId, nodes: Range<usize>) -> Lowering<'a> {
        let outside = (hidden, self.hidden(Buffer::Hidden, self.chunk));
        self.some_rows(self.chunk, nodes, outside, Phase::Prefill)
    }

    /// The nodes after the layers, for the rows whose logits are computed.
    fn logit_rows(&'a self, nodes: Range<usize>, phase: Phase) -> Lowering<'a> {
        let input = self.hidden(Buffer::HeadInput, self.logit_rows);
        self.some_rows(self.logit_rows, nodes, (self.graph.last_hidden(), input), phase)
    }

    fn some_rows(
        &'a self,
        rows: usize,
        nodes: Range<usize>,
        outside: (ValueId, Slice),
        phase: Phase,
    ) -> Lowering<'a> {
        let builder = Builder::new(self.caps, phase, rows, Buffer::Step);
        let tokens = PromptLayout::new(self.room).tokens();
        let of = (&self.graph, nodes, Some(outside));
        self.lowering(of, builder, PassRows::Chunk(self.cache), self.inputs(tokens))
    }

    /// Whole texts into the cache of several, as far as the last layer's keys and values. Not where a cache rounds:
    /// attention reads them as they were before.
    fn texts(&'a self, of: BatchedRows) -> Result<Option<Builder<'a>>> {
        if matches!(of, BatchedRows::OfOne(_)) || self.cache.format != KvCacheFormat::F32 {
            return Ok(None);
        }
        let most = if self.caps.software { self.chunk } else { TEXT_ROWS };
        let rows = most.min(self.cache.sequences * self.shape.capacity.next_multiple_of(ALIGN));
        let builder = Builder::new(self.caps, Phase::Prefill, rows, Buffer::BatchStep);
        let bytes = rows.next_multiple_of(ALIGN) as u64 * 4;
        let documents = Slice::new(Buffer::BatchDocuments, 0, bytes);
        let over =
            PassRows::Texts { cache: self.cache, places: Slice { offset: bytes, ..documents } };
        let tokens = Slice::new(Buffer::BatchTokens, 0, bytes);
        let attends = |node: &Node| matches!(node.op, Op::Attention { .. });
        // Without attention there is nothing to read of them.
        let Some(last) = self.graph.nodes.iter().rposition(attends) else { return Ok(None) };
        let end = last + 1;
        let inputs = PassInputs { documents, ..self.inputs(tokens) };
        let mut lowering = self.lowering((&self.graph, 0..end, None), builder, over, inputs);
        lowering.nodes(0..end)?;
        Ok(Some(lowering.builder))
    }

    pub(super) fn inputs(&self, tokens: Slice) -> PassInputs {
        // One document: its zeros serve decoded rows too.
        let documents = PromptLayout::new(self.room).documents();
        PassInputs { tokens, documents, positions: self.shape.capacity }
    }

    pub(super) fn matrices(&self) -> Matrices<'a> {
        Matrices { params: self.params, weights: self.weights, mixed: false, rounds: false }
    }

    /// Some nodes of a graph. One of their values may be in a buffer of other plans.
    pub(super) fn lowering(
        &'a self,
        (graph, nodes, outside): (&'a Graph, Range<usize>, Option<(ValueId, Slice)>),
        builder: Builder<'a>,
        rows: PassRows,
        inputs: PassInputs,
    ) -> Lowering<'a> {
        let request = Request {
            caps: self.caps,
            graph,
            nodes,
            outside: outside.map(|(value, _)| value),
            matrices: Matrices {
                rounds: matches!(
                    rows,
                    PassRows::Chunk(_) | PassRows::Documents | PassRows::Texts { .. }
                ),
                ..self.matrices()
            },
            state: self.params,
            tokens: builder.tokens,
            // Decoded rows have no nodes here: `decode_layouts` has theirs.
            kind: PassKind::Prompt {
                appends: matches!(rows, PassRows::Chunk(cache) if cache.format == KvCacheFormat::F32),
            },
        };
        let mut lowering = Lowering::new(request, builder, rows, inputs);
        if let Some((value, slice)) = outside {
            lowering.bind(value, slice);
        }
        lowering
    }

    pub(super) fn hidden(&self, buffer: Buffer, rows: usize) -> Slice {
        Slice::new(buffer, 0, rows as u64 * self.params.architecture.hidden as u64 * 4)
    }

    /// The plan that packs every matrix that is read in a packed format, and the buffers that it fills.
    fn pack(&self) -> Result<(Plan, Vec<(Buffer, u64)>)> {
        let matrices = self.matrices();
        let mut builder = Builder::new(self.caps, Phase::Prefill, 1, Buffer::Step);
        let mut packed = vec![];
        for node in &self.graph.nodes {
            let (Op::Linear { weight, .. } | Op::Head { weight }) = node.op else { continue };
            let matrix = &self.params.matrices[weight];
            if matrix.format != WeightFormat::F32 {
                continue; // as it is held
            }
            for (index, part) in matrix.parts.iter().enumerate() {
                let Some(slice) = matrices.packed(weight, index) else { continue };
                let end = slice.offset + slice.bytes;
                match packed.iter_mut().find(|(buffer, _)| *buffer == slice.buffer) {
                    Some((_, bytes)) => *bytes = end.max(*bytes),
                    None => packed.push((slice.buffer, end)),
                }
                let (format, columns) = (self.weights, matrix.cols);
                let kernel = builder.kernel(k::PackWeights { format, rows: part.rows, columns })?;
                let matrix = weight_part(self.params, weight, index, Buffer::Weights);
                let launch = Launch::new("pack", kernel);
                builder.dispatch(launch.bind("matrix", matrix).bind("packed", slice))?;
            }
        }
        Ok((builder.finish(&[]), packed))
    }

    /// All layers over chunks of `rows` rows.
    fn prefill(&self, rows: usize) -> Result<Builder<'_>> {
        let nodes = 0..self.graph.layers_end;
        let outside = (self.graph.last_hidden(), self.hidden(Buffer::Hidden, rows));
        let mut lowering = self.some_rows(rows, nodes.clone(), outside, Phase::Prefill);
        lowering.nodes(nodes)?;
        Ok(lowering.builder)
    }

    fn probe(&self, probe: Probe) -> Result<Builder<'_>> {
        let nodes = &self.graph.nodes;
        let lowering = match probe {
            Probe::HiddenState(index) => {
                let none = || Error::internal(format!("no node leaves hidden state {index}"));
                let end = self.graph.hidden_state(index).ok_or_else(none)? + 1;
                let hidden = nodes[end - 1].writes[0];
                let mut lowering = self.chunk_to(hidden, 0..end);
                lowering.nodes(0..end)?;
                lowering
            }
            Probe::Attention(layer) => {
                let none = || Error::internal(format!("layer {layer} has no attention"));
                let (at, attention) = self.graph.attention(layer).ok_or_else(none)?;
                let mut lowering = self.chunk(0..at);
                lowering.nodes(0..at)?;
                lowering.probabilities(&nodes[at], attention, self.probabilities())?;
                lowering
            }
            Probe::Documents => {
                let nodes = 0..self.graph.layers_end;
                let builder = Builder::new(self.caps, Phase::Prefill, self.chunk, Buffer::Step);
                let bytes = self.chunk.next_multiple_of(ALIGN) as u64 * 4;
                let documents = Slice::new(Buffer::BatchDocuments, 0, bytes);
                let tokens = PromptLayout::new(self.room).tokens();
                let inputs = PassInputs { documents, ..self.inputs(tokens) };
                let hidden = (self.graph.last_hidden(), self.hidden(Buffer::Hidden, self.chunk));
                let of = (&self.graph, nodes.clone(), Some(hidden));
                let mut lowering = self.lowering(of, builder, PassRows::Documents, inputs);
                lowering.nodes(nodes)?;
                lowering
            }
            Probe::Scores(top) => {
                let mut lowering = self.logit_rows(0..0, Phase::Forward);
                lowering.chunk_scores(PromptLayout::new(self.room).targets(), top)?;
                lowering
            }
        };
        Ok(lowering.builder)
    }

    /// Elements of [`Buffer::Probabilities`]: those of a whole chunk at the end of a text that fills the
    /// cache or, where these are many, of fewer rows, at least one.
    fn probabilities(&self) -> u64 {
        let (chunk, capacity) = (self.chunk as u64, self.shape.capacity as u64);
        let most = PROBABILITY_BYTES.min(self.caps.limits.binding_bytes()) / 4;
        (chunk * capacity).min(most).max(capacity)
    }

    fn logits(&self) -> Result<Builder<'_>> {
        let nodes = self.graph.layers_end..self.graph.nodes.len();
        let mut lowering = self.logit_rows(nodes.clone(), Phase::Prefill);
        lowering.nodes(nodes)?;
        lowering.cap_logits()?;
        Ok(lowering.builder)
    }

    fn loss(&self) -> Result<Builder<'_>> {
        let mut lowering = self.logit_rows(0..0, Phase::Forward);
        lowering.chunk_loss(PromptLayout::new(self.room).targets())?;
        Ok(lowering.builder)
    }

    fn last_row(&self) -> Result<Builder<'_>> {
        let mut builder = Builder::new(self.caps, Phase::Prefill, 1, Buffer::Step);
        let kernel = builder.kernel(k::CopyRow { hidden: self.params.architecture.hidden })?;
        let from = self.hidden(Buffer::Hidden, self.room);
        let launch = Launch::new("last row", kernel).bind("input", from);
        builder.dispatch(launch.bind("output", self.hidden(Buffer::LastHidden, 1)))?;
        Ok(builder)
    }
}
