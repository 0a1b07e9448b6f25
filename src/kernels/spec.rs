//! What a kernel computes, as plain data: an operation with its shape and options.
//!
//! Selection is a pure function of a spec and [`Capabilities`]. A kernel in a plan carries its spec, so
//! that whoever executes a plan (a GPU, or loops on the CPU) knows each dispatch without knowing models.

use super::shape::{
    ActivationWidth, AttentionPass, AttentionProducts, AttentionShape, AttentionTile, Constant,
    DecodeSplits, DenseMask, GradientSums, KeyValueOwner, LogitRow, MatvecRowsShape, MatvecShape,
    NewestShape, NormForm, NormTerms, Objective, Output, Parts, RopeShape, SummedWeights,
};
use super::update::UpdateSpec;
use crate::format::{Element, KvCache, WeightFormat, WriteMode};
use crate::products::{LinearShape, LinearTile};

/// Why a kernel has the tile that its spec names.
pub(super) const GIVEN_TILE: &str = "the tile that was asked for";

/// An operation of one dispatch. How many rows it covers, and which part of a matrix, is said by the
/// dispatch. The header of the shader gives each binding's shape; the CPU twin has the kernel's name.
///
/// `tokens` in a shape helps to choose a tile: no result depends on it, except where a field says so.
/// A `tile` is given for measurements and tests; none leaves it to selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KernelSpec {
    /// Clears `count` elements on the first micro-step.
    Zero {
        count: usize,
    },
    /// The batch's last row of `hidden` elements.
    CopyRow {
        hidden: usize,
    },
    /// In place on rows of `columns` elements.
    Scale {
        columns: usize,
        factor: Constant,
    },
    /// Leaves out a share of the elements of rows of `columns`. With `residual` it adds other rows to the rest.
    Dropout {
        columns: usize,
        rate: Constant,
        mode: WriteMode,
        residual: bool,
    },
    /// Of `count` words.
    Checksum {
        count: usize,
    },
    /// `count` initial weights.
    Initialize {
        count: usize,
    },
    /// The rows of those tokens that are within the range's columns; the first range clears the others. Of a decoded row
    /// also the `rotated` numbers that a table turns by at its position, if these are not 0.
    EmbeddingForward {
        hidden: usize,
        rotated: usize,
    },
    /// The same from a packed part of `rows` rows.
    EmbeddingPacked {
        hidden: usize,
        rows: usize,
        format: WeightFormat,
        rotated: usize,
    },
    EmbeddingBackward {
        hidden: usize,
    },
    /// Adds the rows of those positions that are within the range's columns, in place.
    PositionForward {
        hidden: usize,
    },
    /// Document ends lie `ends` elements behind the starts.
    PositionBackward {
        hidden: usize,
        ends: usize,
    },
    /// With `residual` that is added to the result. With `half` that is in f16, two elements to a word: only without
    /// a residual, and of rows of fours.
    RmsNormForward {
        hidden: usize,
        terms: NormTerms,
        form: NormForm,
    },
    /// `mode` is for `d_x`. `rows` rows leave one partial sum of the weight's gradient. `d_y` lies in `parts`.
    RmsNormBackward {
        hidden: usize,
        terms: NormTerms,
        mode: WriteMode,
        rows: usize,
        parts: Parts,
    },
    LayerNormForward {
        hidden: usize,
        epsilon: Constant,
    },
    /// As [`KernelSpec::RmsNormBackward`]; a partial sum has the factors' columns, then those of what is added.
    LayerNormBackward {
        hidden: usize,
        epsilon: Constant,
        mode: WriteMode,
        rows: usize,
    },
    HeadNormForward {
        shape: AttentionShape,
        terms: NormTerms,
    },
    /// In place; `rows` as for [`KernelSpec::RmsNormBackward`], queries' columns before keys'.
    HeadNormBackward {
        shape: AttentionShape,
        terms: NormTerms,
        rows: usize,
    },
    /// Adds up partial sums of `hidden` columns, one for every `rows` rows of the batch, for each of `weights`.
    ColumnSum {
        hidden: usize,
        rows: usize,
        weights: SummedWeights,
    },
    /// A product. Where K is cut into `splits` > 1 parts it overwrites parts of `tokens` × N each
    /// (K × N for [`Form::MatmulAt`](super::Form::MatmulAt)), one after the other, whatever `output` is:
    /// [`KernelSpec::LinearSum`] adds them up.
    Linear {
        shape: LinearShape,
        output: Output,
        splits: usize,
        tile: Option<LinearTile>,
    },
    LinearSum {
        shape: LinearShape,
        output: Output,
        splits: usize,
    },
    /// Adds up what [`KernelSpec::Linear`] has left in parts of gradients of several weights.
    GradientSum(GradientSums),
    Matvec(MatvecShape),
    MatvecRows(MatvecRowsShape),
    /// In place; backward rotates back. With `half` from rows in f32 to rows in f16; forward from `parts` to their sums.
    Rope {
        shape: RopeShape,
        forward: bool,
        half: bool,
        parts: Parts,
    },
    CacheAppend {
        shape: AttentionShape,
        cache: KvCache,
    },
    /// Rows of texts of their own, each behind its text's.
    CacheAppendSeveral {
        shape: AttentionShape,
        cache: KvCache,
    },
    CacheExpand {
        shape: AttentionShape,
        cache: KvCache,
    },
    /// Keys and values are the batch's own rows, or with `cached` rows of a cache in f32.
    AttentionForward {
        shape: AttentionShape,
        cached: bool,
        tile: Option<AttentionTile>,
    },
    /// The row sums that both backward kernels need. `d_output` lies in `parts`: then it is also left whole.
    AttentionDelta {
        shape: AttentionShape,
        parts: Parts,
    },
    AttentionBackwardQuery {
        shape: AttentionShape,
        tile: Option<AttentionTile>,
    },
    /// Document ends lie `ends` elements behind the starts.
    AttentionBackwardKeyValue {
        shape: AttentionShape,
        owner: KeyValueOwner,
        ends: usize,
        tile: Option<AttentionTile>,
    },
    /// A kernel of the backward pass by products. Each head has up to `tiles` tiles of probabilities, and as many of
    /// score gradients. Document ends lie `ends` elements behind the starts. Tables of the tiles lie `2 * ends` behind
    /// the starts.
    AttentionBackwardProducts {
        shape: AttentionShape,
        tiles: usize,
        ends: usize,
        products: AttentionProducts,
    },
    /// Adds up the parts of [`KeyValueOwner::Head`].
    AttentionGroupSum {
        shape: AttentionShape,
    },
    /// How much the queries of one head attend to each key of a cache in f32; the head is a run-time value.
    AttentionProbabilities {
        shape: AttentionShape,
    },
    /// The newest row's queries over a cache: the result where `splits.count` is 1, else partial ones.
    AttentionDecode {
        shape: AttentionShape,
        cache: KvCache,
        splits: DecodeSplits,
    },
    AttentionDecodeMerge {
        shape: AttentionShape,
        splits: DecodeSplits,
    },
    /// The newest row's norm, product and rotation, and its queries over the keys before it.
    AttentionDecodeNewest {
        shape: NewestShape,
        splits: DecodeSplits,
    },
    /// [`KernelSpec::AttentionDecode`] of each of `rows` fused rows, over its own text.
    AttentionDecodeSeveral {
        shape: AttentionShape,
        cache: KvCache,
        splits: DecodeSplits,
        rows: usize,
    },
    AttentionDecodeMergeSeveral {
        shape: AttentionShape,
        splits: DecodeSplits,
        rows: usize,
    },
    /// A pass of attention over tensors of `batch` items.
    AttentionTensors {
        shape: AttentionShape,
        pass: AttentionPass,
        element: Element,
        dense: DenseMask,
        batch: usize,
    },
    AttentionDeltaTensors {
        shape: AttentionShape,
        element: Element,
        batch: usize,
    },
    AttentionDecodeTensors {
        shape: AttentionShape,
        element: Element,
        splits: DecodeSplits,
        batch: usize,
    },
    AttentionDecodeMergeTensors {
        shape: AttentionShape,
        element: Element,
        splits: DecodeSplits,
        batch: usize,
    },
    /// Rows of `columns` elements.
    Softmax {
        columns: usize,
        element: Element,
    },
    Activation(ActivationWidth),
    ActivationBackward(ActivationWidth),
    /// Losses, and with `gradient` the gradient of the logits in their place.
    CrossEntropy {
        row: LogitRow,
        gradient: bool,
    },
    /// Losses of another objective, of logits that are squashed into ± `cap` first if there is one. With `gradient`
    /// each logit is replaced by its gradient.
    ObjectiveCrossEntropy {
        row: LogitRow,
        gradient: bool,
        objective: Objective,
        cap: Option<Constant>,
    },
    /// Rows of `columns` logits, squashed into ± `cap` in place.
    SoftCap {
        columns: usize,
        cap: Constant,
    },
    LossSum,
    PackWeights {
        format: WeightFormat,
        rows: usize,
        columns: usize,
    },
    UnpackWeights {
        format: WeightFormat,
        rows: usize,
        columns: usize,
    },
    /// Partial sums of the squares of one shard's gradients.
    GradNorm,
    /// Whether to update, and how much the gradients are scaled, from `partials` partial sums.
    StepDecision {
        partials: usize,
    },
    /// A kernel of an optimizer's rule.
    Update(UpdateSpec),
    /// The moving average of a run of weights.
    Average {
        count: usize,
        share: Constant,
    },
    /// Draws a token; with `biased` from logits with a number added to each.
    Sample {
        vocabulary: usize,
        biased: bool,
    },
    /// Draws a token for each of several rows.
    SampleSeveral {
        vocabulary: usize,
        rows: usize,
    },
    /// The `count` likeliest tokens, with their log-probabilities.
    TopLogits {
        vocabulary: usize,
        count: usize,
    },
}

impl KernelSpec {
    /// Arithmetic of attention over a cache, per row and key: two products, or one of a single head.
    pub const fn flops_per_cached_key(&self) -> f64 {
        match self {
            Self::AttentionForward { shape, cached: true, .. } => 4.0 * shape.width() as f64,
            Self::AttentionProbabilities { shape } => 2.0 * shape.head_dim as f64,
            _ => 0.0,
        }
    }

    /// The entry point of the kernel.
    #[expect(clippy::too_many_lines, reason = "a table of names")]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Zero { .. } => "zero_forward",
            Self::CopyRow { .. } => "copy_row_forward",
            Self::Scale { .. } => "scale_forward",
            Self::Dropout { .. } => "dropout_forward",
            Self::Checksum { .. } => "checksum_forward",
            Self::Initialize { .. } => "initialize_forward",
            Self::EmbeddingForward { .. } => "embedding_forward",
            Self::EmbeddingPacked { .. } => "embedding_packed_forward",
            Self::EmbeddingBackward { .. } => "embedding_backward",
            Self::PositionForward { .. } => "position_forward",
            Self::PositionBackward { .. } => "position_backward",
            Self::RmsNormForward { .. } => "rms_norm_forward",
            Self::RmsNormBackward { .. } => "rms_norm_backward",
            Self::LayerNormForward { .. } => "layer_norm_forward",
            Self::LayerNormBackward { .. } => "layer_norm_backward",
            Self::HeadNormForward { .. } => "head_norm_forward",
            Self::HeadNormBackward { .. } => "head_norm_backward",
            Self::ColumnSum { .. } => "column_sum_forward",
            Self::Linear { shape, .. } => shape.form.name(),
            Self::LinearSum { .. } => "linear_sum",
            Self::GradientSum(_) => "gradient_sum",
            Self::Matvec(_) => "matvec_forward",
            Self::MatvecRows(_) => "matvec_rows_forward",
            Self::Rope { forward: true, .. } => "rope_forward",
            Self::Rope { .. } => "rope_backward",
            Self::CacheAppend { .. } | Self::CacheAppendSeveral { .. } => "cache_append_forward",
            Self::CacheExpand { .. } => "cache_expand_forward",
            Self::AttentionForward { .. } => AttentionPass::Forward.kernel_name(),
            Self::AttentionDelta { .. } | Self::AttentionDeltaTensors { .. } => {
                "attention_delta_backward"
            }
            Self::AttentionBackwardQuery { .. } => AttentionPass::Query.kernel_name(),
            Self::AttentionBackwardKeyValue { .. } => AttentionPass::KeyValue.kernel_name(),
            Self::AttentionBackwardProducts { products: AttentionProducts::Scores, .. } => {
                "attention_backward_scores"
            }
            Self::AttentionBackwardProducts { .. } => "attention_backward_sums",
            Self::AttentionTensors { pass, .. } => pass.kernel_name(),
            Self::AttentionGroupSum { .. } => "attention_group_sum",
            Self::AttentionProbabilities { .. } => "attention_probabilities_forward",
            Self::AttentionDecode { splits, .. }
            | Self::AttentionDecodeSeveral { splits, .. }
            | Self::AttentionDecodeTensors { splits, .. } => {
                if splits.count == 1 {
                    "attention_decode"
                } else {
                    "attention_decode_split"
                }
            }
            Self::AttentionDecodeNewest { .. } => "attention_decode_newest",
            Self::AttentionDecodeMerge { .. }
            | Self::AttentionDecodeMergeSeveral { .. }
            | Self::AttentionDecodeMergeTensors { .. } => "attention_decode_merge",
            Self::Softmax { .. } => "softmax_forward",
            Self::Activation(ActivationWidth { gated: false, .. }) => "activation_forward",
            Self::Activation(_) => "gated_activation_forward",
            Self::ActivationBackward(ActivationWidth { gated: false, .. }) => "activation_backward",
            Self::ActivationBackward(_) => "gated_activation_backward",
            Self::CrossEntropy { gradient: true, .. } => "cross_entropy_backward",
            Self::CrossEntropy { .. } => "cross_entropy_forward",
            Self::ObjectiveCrossEntropy { gradient: true, .. } => {
                "objective_cross_entropy_backward"
            }
            Self::ObjectiveCrossEntropy { .. } => "objective_cross_entropy_forward",
            Self::SoftCap { .. } => "soft_cap_forward",
            Self::LossSum => "loss_sum_forward",
            Self::PackWeights { .. } => "pack_weights_forward",
            Self::UnpackWeights { .. } => "unpack_weights_forward",
            Self::GradNorm => "grad_norm_forward",
            Self::StepDecision { .. } => "step_decision_forward",
            Self::Average { .. } => "average_forward",
            Self::Update(update) => update.kernel.name,
            Self::Sample { .. } | Self::SampleSeveral { .. } => "sample_forward",
            Self::TopLogits { .. } => "top_logits_forward",
        }
    }
}
