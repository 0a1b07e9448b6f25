//! Plans: flat lists of prebuilt dispatches as plain data, with no GPU handle in them.
//!
//! A model is compiled once into a plan for each thing it does; a step replays plans. Activations
//! are virtual tensors while a plan is built and share slots once it is finished ([`slots`]).

mod batch;
mod buffers;
mod builder;
mod launch;
mod layer;
mod product;
pub mod slots;
mod step;
mod tune;

pub use batch::{BatchLayout, PromptLayout, count_tiles};
pub use buffers::{BufferSizes, allocated_bytes, buffers};
pub use builder::{Builder, RANGE_STRIDE};
pub use launch::{Launch, NamedSlice};
pub use product::LowRankTerms;
pub use step::{Initialize, MOST_NUMBERS, RowChoice, STEP_BYTES, Sampling, Step};
pub use tune::product_plan;

use crate::error::Result;
use crate::kernels::{Binding, Kernel, LinearShape};
use serde::Serialize;

/// A buffer that a plan refers to; the session decides what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Buffer {
    /// Shards of the parameters and of what has their layout.
    Weights(usize),
    Gradients(usize),
    Moment1(usize),
    Moment2(usize),
    /// Scales of moments that are codes.
    Scales(usize),
    /// The moving average of what is trained.
    Average(usize),
    /// The weights in f16, two elements per word, in the shards' layout.
    Mirror(usize),
    /// A part of a matrix, by its number among all parts, as inference reads it packed.
    Packed(usize),
    /// What a buffer is to an operation, by number: bound whole, whatever a slice says.
    Given(u32),
    /// A virtual tensor, only while a plan is being built.
    Virtual(usize),
    /// An activation slot, shared by virtual tensors that are never alive together.
    Slot(usize),
    /// Token ids, targets, sort order and documents of a batch ([`BatchLayout`]); of a chunk of a
    /// prompt, [`PromptLayout`].
    Batch,
    /// The `Step` uniform.
    Step,
    /// The `Range` uniforms of this plan, 256 bytes apart.
    Ranges,
    /// (cos, sin) by position and pair, of each of the model's rotary embeddings.
    RopeTable(usize),
    /// A loss for each token.
    Losses,
    /// What a step says of its loss besides targets: numbers, and a weight of each target.
    Steering,
    TargetWeights,
    /// (token, bits of its probability) of each row.
    SoftTargets,
    /// What rows of logits say of their tokens.
    Scores,
    Metrics,
    /// What a rule carries over updates, and what was decided of the last step.
    Optimizer,
    /// Partial sums of squared gradients.
    Squares,
    /// Key-value cache of a layer.
    Cache(usize),
    /// Key-value cache of a layer for several texts, one after the other.
    BatchCache(usize),
    /// The token to decode next of each of several rows. Of whole texts: all their tokens.
    BatchTokens,
    /// For each row `row - position`, modulo 2^32: the row at which its text would begin. Whole texts have a second
    /// part after it: `row - cache row`, modulo 2^32, for what is appended.
    BatchDocuments,
    /// The tokens that each of several rows has seen, as a bit set.
    BatchSeen,
    /// What was drawn for each of several rows.
    BatchDrawn,
    /// How each of several rows draws.
    Choices,
    /// The `Step` of several decoded rows.
    BatchStep,
    /// Output of the last layer for a chunk of a prompt.
    Hidden,
    /// Rows of [`Buffer::Hidden`] whose logits are computed: those of a whole chunk may be too many at a time.
    HeadInput,
    /// The row whose next token is decoded.
    LastHidden,
    Logits,
    /// The token to decode next.
    Token,
    /// Tokens seen, as a bit set.
    Seen,
    Drawn,
    /// Options of the sampling kernel.
    Sampling,
    /// A number for each token that is added to its logit.
    Bias,
    /// The `Step` of decoding, advanced on the GPU.
    DecodeStep,
    /// The head whose probabilities are asked for.
    Probe,
    /// Probabilities of attention, by rows of a chunk and keys up to its last one.
    Probabilities,
    /// What interventions do at each site (`InterventionLayout`).
    Interventions,
    /// What a pass keeps of its layers (`CaptureLayout`).
    Captured,
    /// Sums that tell weights from others.
    Checksums,
}

/// Bytes of a buffer that a dispatch binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    pub buffer: Buffer,
    pub offset: u64,
    pub bytes: u64,
}

impl Slice {
    pub const fn new(buffer: Buffer, offset: u64, bytes: u64) -> Self {
        Self { buffer, offset, bytes }
    }
}

/// The `Range` uniform of `lib/range.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Range {
    pub row0: u32,
    pub rows: u32,
    pub col0: u32,
    pub cols: u32,
}

impl Range {
    /// Rows that a batch of `tokens` leaves to this range.
    pub fn rows_of(&self, tokens: usize) -> usize {
        tokens.saturating_sub(self.row0 as usize).min(self.rows as usize)
    }
}

/// Part of a step that a dispatch belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    Forward,
    Backward,
    Optimizer,
    Prefill,
    Decode,
}

/// Arithmetic and memory traffic of a dispatch at the plan's largest batch: an estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    pub flops: f64,
    pub bytes: f64,
    /// Arithmetic of attention over a cache: per row, and per key that was there before the batch.
    pub flops_per_earlier_key: f64,
}

impl Cost {
    /// What a dispatch costs besides its work, in operations or bytes: 5 µs of a slow GPU, half a millisecond of a CPU.
    pub const DISPATCH: f64 = 1.5e6;

    /// Operations and bytes of a replay of `rows` rows of at most `most`, the last of which sees `keys`
    /// positions of a cache. Each byte counts, however few the rows are.
    pub fn of_rows(&self, rows: usize, most: usize, keys: usize) -> f64 {
        let share = (rows as f64 / most.max(1) as f64).min(1.0);
        let earlier = (rows * keys.saturating_sub(most)) as f64;
        let flops = self.flops * share + self.flops_per_earlier_key * earlier;
        flops + self.bytes + Self::DISPATCH
    }
}

/// Bytes of [`Buffer::Metrics`] and of [`Buffer::Optimizer`].
pub const METRICS_BYTES: u64 = 32;
pub const OPTIMIZER_BYTES: u64 = 16;

/// One prebuilt dispatch.
#[derive(Clone, Debug)]
pub struct Dispatch {
    /// Index into [`Plan::kernels`].
    pub kernel: usize,
    /// Slice `i` is bound at binding `i`.
    pub slices: Vec<Slice>,
    /// What the kernel reads and writes of the slices, where operands [share](Kernel::placed) them. Empty: all of each.
    pub operands: Vec<(Binding, Slice)>,
    /// Token rows covered.
    pub range: Range,
    pub phase: Phase,
    pub label: String,
    pub cost: Cost,
}

impl Dispatch {
    /// The slices of its bindings, and those of its operands.
    fn all_slices(&mut self) -> impl Iterator<Item = &mut Slice> {
        self.slices.iter_mut().chain(self.operands.iter_mut().map(|(_, slice)| slice))
    }
}

/// A finished plan.
#[derive(Clone, Debug)]
pub struct Plan {
    pub kernels: Vec<Kernel>,
    pub dispatches: Vec<Dispatch>,
    /// Contents of [`Buffer::Ranges`], 256 bytes apart.
    pub ranges: Vec<Range>,
    /// Bytes of each activation slot that the plan uses.
    pub slots: Vec<u64>,
    /// Bytes that the virtual tensors would take if none shared a slot.
    pub unshared_bytes: u64,
    /// The batch that costs refer to.
    pub tokens: usize,
    /// Products among the dispatches, one for each time that it is computed.
    pub products: Vec<LinearShape>,
    /// What the head of a batch reads and leaves.
    pub head: Option<HeadRows>,
}

/// Where the head of a batch reads the states of all rows, and leaves the loss's gradient by them: rows of
/// `hidden_size` numbers in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadRows {
    pub states: Slice,
    /// Where a backward pass asks for it.
    pub gradient: Option<Slice>,
}

/// A row of `trainer.plan()`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanRow {
    pub phase: Phase,
    pub label: String,
    pub kernel: &'static str,
    pub variant: String,
    pub reason: String,
    /// What the text is joined from: files below `shaders` without the ending, in order.
    pub modules: Vec<&'static str>,
    /// The binding table, in the order of indices.
    pub bindings: Vec<Binding>,
    pub workgroup_size: [u32; 3],
    pub grid: [u32; 3],
    pub flops: f64,
    pub bytes: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_microseconds: Option<f64>,
}

impl Plan {
    /// The plan as a table, at its largest batch.
    pub fn rows(&self, most_workgroups: u32) -> Result<Vec<PlanRow>> {
        self.dispatches
            .iter()
            .map(|dispatch| {
                let kernel = &self.kernels[dispatch.kernel];
                let rows = dispatch.range.rows_of(self.tokens);
                Ok(PlanRow {
                    phase: dispatch.phase,
                    label: dispatch.label.clone(),
                    kernel: kernel.name,
                    variant: kernel.variant.clone(),
                    reason: kernel.reason.clone(),
                    modules: kernel.modules.clone(),
                    bindings: kernel.bindings.clone(),
                    workgroup_size: [kernel.workgroup_size, 1, 1],
                    grid: kernel
                        .grid
                        .resolve(rows, most_workgroups)?
                        .map_or([0, 0, 0], |[x, y]| [x, y, 1]),
                    flops: dispatch.cost.flops,
                    bytes: dispatch.cost.bytes,
                    gpu_microseconds: None,
                })
            })
            .collect()
    }

    /// The number of each dispatch's bind group. Successive dispatches that bind the same share one.
    pub fn groups(&self) -> Vec<usize> {
        let accesses = |dispatch: &Dispatch| {
            self.kernels[dispatch.kernel].bindings.iter().map(|binding| binding.access)
        };
        let mut group = 0;
        let mut last: Option<&Dispatch> = None;
        let of = |dispatch| {
            if let Some(last) = last.replace(dispatch) {
                let same = last.slices == dispatch.slices && accesses(last).eq(accesses(dispatch));
                group += usize::from(!same);
            }
            group
        };
        self.dispatches.iter().map(of).collect()
    }

    /// Arithmetic of the whole plan at its largest batch.
    pub fn flops(&self) -> f64 {
        self.dispatches.iter().map(|d| d.cost.flops).sum()
    }
}
