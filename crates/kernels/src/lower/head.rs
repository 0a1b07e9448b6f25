//! The head: logits, their loss, and the gradients of both, for a chunk of rows at a time. A chunk fits a
//! binding and `LOGITS_BYTES`, or a share of the weights' bytes.

use super::linear::{OVERWRITE, weight_products};
use super::{Lowering, PassRows};
use crate::arch::WeightId;
use crate::caps::Capabilities;
use crate::error::{Error, Result};
use crate::graph::Node;
use crate::kernels::{
    self as k, Constant, Form, LogitRow, Objective, RowScore, Steering, SteeringNumbers, WriteMode,
};
use crate::layout::{Fusion, GradientProduct, logit_chunks, padded_logits};
use crate::params::{ALIGN, Params};
use crate::plan::{BatchLayout, Buffer, HeadRows, Launch, METRICS_BYTES, Phase, Range, Slice};

/// Most bytes of logits held at a time (512 rows of GPT-2's vocabulary take 103 MB), and the share
/// of the weights' bytes that they may take where that is more. More rows are computed in several chunks.
const LOGITS_BYTES: u64 = 104 << 20;
const LOGITS_SHARE: u64 = 8;

/// The numbers that steer a loss.
const STEERING: Slice = Slice::new(Buffer::Steering, 0, size_of::<SteeringNumbers>() as u64);

/// Where [`Buffer::Scores`] has a [`RowScore`] for each of `rows` rows.
pub fn scores(rows: usize) -> Slice {
    Slice::new(Buffer::Scores, 0, (rows * size_of::<RowScore>()) as u64)
}

/// Where it has the likeliest tokens of each.
pub fn top_rows(rows: usize, top: usize) -> Slice {
    let offset = scores(rows).bytes.next_multiple_of(4 * ALIGN as u64);
    Slice::new(Buffer::Scores, offset, (rows * top * 8) as u64)
}

/// Rows of the largest tile of a product.
const TILE_ROWS: usize = 128;

/// Rows of logits held at a time. All chunks but the last have this many. It is a multiple of the largest tile's rows
/// where that fits, so that no tile is partly empty. It is at least what aligns the offset of the next chunk's rows of
/// `hidden` elements. Of an adapter its base's weights count, too (docs/decisions/081-adapters-heads-and-chunks.md).
pub(super) fn logits_chunk(caps: &Capabilities, params: &Params, tokens: usize) -> usize {
    let model = &params.architecture;
    let wanted =
        LOGITS_BYTES.max(params.bytes_with_base() / LOGITS_SHARE).min(caps.limits.binding_bytes());
    let most = (wanted / 4) as usize / padded_logits(model.vocab_size).stride;
    if most >= tokens {
        return tokens;
    }
    let aligned = aligned_rows(model.hidden);
    let step = [TILE_ROWS, ALIGN].into_iter().find(|step| most >= *step).unwrap_or(aligned);
    let chunks = tokens.div_ceil((most / step * step).max(aligned));
    tokens.div_ceil(chunks).next_multiple_of(step)
}

/// Rows of `hidden` elements may be bound from each multiple of this number of rows on.
pub(super) fn aligned_rows(hidden: usize) -> usize {
    ALIGN >> hidden.trailing_zeros().min(ALIGN.trailing_zeros())
}

impl Lowering<'_> {
    /// The batch of a training plan, and the rows of logits held at a time.
    pub(super) fn batch(&self) -> Result<(BatchLayout, usize)> {
        match self.rows {
            PassRows::Batch { batch, logits, .. } => Ok((batch, logits)),
            _ => Err(Error::internal("only training has a batch")),
        }
    }

    /// What a training plan minimises; other plans give the cross-entropy alone.
    fn objective(&self) -> Objective {
        match self.rows {
            PassRows::Batch { objective, .. } => objective,
            _ => Objective::default(),
        }
    }

    /// Logits of every row of a chunk of a prompt, or the loss of a batch.
    pub(super) fn head(&mut self, node: &Node, weight: WeightId) -> Result<()> {
        let input = self.read(node, 0)?;
        if let PassRows::Batch { .. } = self.rows {
            return self.loss(weight, input, None, None);
        }
        let (label, token_rows) = (node.site.to_string(), self.token_rows(weight));
        let logits = self.logits();
        let of = (Form::MatmulT, weight);
        self.products(&label, of, [input, logits], (OVERWRITE, &[]), token_rows)
    }

    /// [`Buffer::Logits`] of a chunk of a prompt, or of one row.
    pub(super) fn logits(&self) -> Slice {
        let elements = self.builder.tokens as u64 * self.params.architecture.vocab_size as u64;
        Slice::new(Buffer::Logits, 0, elements * 4)
    }

    pub(super) fn head_backward(
        &mut self,
        node: &Node,
        weight: WeightId,
        fusion: &Fusion,
    ) -> Result<()> {
        let input = self.read(node, 0)?;
        let d_input = if node.writes.is_empty() { None } else { Some(self.written(node, 0)?) };
        let trained = matches!(fusion, Fusion::WeightGradient(_));
        self.loss(weight, input, d_input, trained.then(|| weight_products(fusion)))
    }

    /// Logits, loss and, with `d_input` or `products`, the gradients of the head, a chunk of rows at a time.
    fn loss(
        &mut self,
        weight: WeightId,
        input: Slice,
        d_input: Option<Slice>,
        products: Option<&[GradientProduct]>,
    ) -> Result<()> {
        let (batch, chunk) = self.batch()?;
        let (tokens, vocabulary) = (self.builder.tokens, self.params.architecture.vocab_size);
        let (row, row_bytes) = (padded_logits(vocabulary), self.hidden() as u64 * 4);
        let backward = d_input.is_some() || products.is_some();
        let logits = self.builder.tensor("logits", chunk.min(tokens) as u64 * row.stride as u64)?;
        self.builder.head = Some(HeadRows { states: input, gradient: d_input });
        let mut products = products.map(<[_]>::iter);
        for token_rows in logit_chunks(vocabulary, tokens, chunk) {
            let rows = token_rows.rows;
            if self.logit_row.is_some_and(|row| !(rows.row0..rows.row0 + rows.rows).contains(&row))
            {
                continue;
            }
            let cut = |slice: Slice| Slice {
                offset: slice.offset + u64::from(rows.row0) * row_bytes,
                bytes: u64::from(rows.rows) * row_bytes,
                ..slice
            };
            self.builder.phase = Phase::Forward;
            let operands = [cut(input), logits];
            let of = (Form::MatmulT, weight);
            self.products("logits", of, operands, (OVERWRITE, &[]), token_rows)?;
            let soft_cap = self.params.architecture.logit_soft_cap;
            self.cross_entropy([logits, batch.targets()], row, rows, (backward, soft_cap))?;
            if !backward {
                continue;
            }
            self.builder.phase = Phase::Backward;
            if let Some(d_input) = d_input {
                let (of, operands) = ((Form::Matmul, weight), [logits, cut(d_input)]);
                self.products("head input", of, operands, (OVERWRITE, &[]), token_rows)?;
            }
            if let Some(products) = &mut products {
                let first = rows.row0 == 0;
                let write = if first { WriteMode::AddAfterFirst } else { WriteMode::Add };
                let (operands, of) = ([logits, cut(input)], (token_rows, write));
                self.weight_gradient("head weight", weight, operands, of, products)?;
            }
        }
        self.loss_sum(batch.targets())
    }

    /// The loss of rows of logits, which are capped first if there is a cap; with `gradient` their gradient
    /// overwrites them.
    fn cross_entropy(
        &mut self,
        [logits, targets]: [Slice; 2],
        row: LogitRow,
        rows: Range,
        (gradient, soft_cap): (bool, Option<f64>),
    ) -> Result<()> {
        let objective = self.objective();
        let objective = if gradient { objective } else { Objective::default() };
        let kernel = if soft_cap.is_none() && objective.is_plain() {
            self.builder.kernel(k::CrossEntropy { row, gradient })
        } else {
            let cap = soft_cap.map(Constant);
            self.builder.kernel(k::ObjectiveCrossEntropy { row, gradient, objective, cap })
        }?;
        let weighted = objective.steering.is_weighted();
        let soft = objective.steering == Steering::SoftTargets;
        let soft_bytes = (self.builder.tokens * (k::SOFT_IDS + 1)) as u64 * 8;
        let soft = soft.then_some(Slice::new(Buffer::SoftTargets, 0, soft_bytes));
        let launch = Launch::new("cross-entropy", kernel)
            .rows(rows)
            .bind("logits", logits)
            .bind("targets", targets)
            .bind("losses", self.losses())
            .bind_some("steering", weighted.then_some(STEERING))
            .bind_some("weights", weighted.then(|| self.row_numbers(Buffer::TargetWeights)))
            .bind_some("soft", soft);
        self.builder.dispatch(launch.flops(6.0 * f64::from(rows.rows) * row.vocabulary as f64))
    }

    fn losses(&self) -> Slice {
        self.row_numbers(Buffer::Losses)
    }

    /// A number for each row.
    fn row_numbers(&self, buffer: Buffer) -> Slice {
        Slice::new(buffer, 0, self.builder.tokens as u64 * 4)
    }

    fn loss_sum(&mut self, targets: Slice) -> Result<()> {
        let kernel = self.builder.kernel(k::LossSumForward)?;
        let metrics = Slice::new(Buffer::Metrics, 0, METRICS_BYTES);
        let launch = Launch::new("loss sum", kernel)
            .bind("losses", self.losses())
            .bind("targets", targets)
            .bind("metrics", metrics);
        self.builder.dispatch(launch.flops(self.builder.tokens as f64))
    }

    /// Squashes [`Buffer::Logits`] where the model does, for all who read it.
    pub(super) fn cap_logits(&mut self) -> Result<()> {
        let Some(cap) = self.params.architecture.logit_soft_cap else { return Ok(()) };
        let vocabulary = self.params.architecture.vocab_size;
        let kernel = self.builder.kernel(k::SoftCap { columns: vocabulary, cap: Constant(cap) })?;
        let launch = Launch::new("logits soft cap", kernel).bind("logits", self.logits());
        self.builder.dispatch(launch.flops(8.0 * (self.builder.tokens * vocabulary) as f64))
    }

    /// Loss of every row of a chunk of a prompt, from [`Buffer::Logits`]. The host adds them up.
    pub(super) fn chunk_loss(&mut self, targets: Slice) -> Result<()> {
        let (logits, vocabulary) = (self.logits(), self.params.architecture.vocab_size);
        let row = LogitRow { vocabulary, stride: vocabulary };
        self.cross_entropy([logits, targets], row, self.builder.all_rows(), (false, None))
    }

    /// What every row of a chunk of a prompt says of its tokens, from [`Buffer::Logits`], and the `top` likeliest of them.
    pub(super) fn chunk_scores(&mut self, targets: Slice, top: usize) -> Result<()> {
        let (logits, vocabulary) = (self.logits(), self.params.architecture.vocab_size);
        let row = LogitRow { vocabulary, stride: vocabulary };
        let objective = Objective { steering: Steering::Scores, ..Objective::default() };
        let spec = k::ObjectiveCrossEntropy { row, gradient: false, objective, cap: None };
        let rows = self.builder.all_rows();
        let launch = Launch::new("scores", self.builder.kernel(spec)?)
            .rows(rows)
            .bind("logits", logits)
            .bind("targets", targets)
            .bind("scores", scores(self.builder.tokens))
            .bind("steering", STEERING);
        self.builder.dispatch(launch.flops(8.0 * f64::from(rows.rows) * vocabulary as f64))?;
        if top == 0 {
            return Ok(());
        }
        let kernel = self.builder.kernel(k::TopRows { vocabulary, count: top })?;
        let launch = Launch::new("likeliest", kernel)
            .rows(rows)
            .bind("logits", logits)
            .bind("top", top_rows(self.builder.tokens, top));
        self.builder
            .dispatch(launch.flops(3.0 * top as f64 * f64::from(rows.rows) * vocabulary as f64))
    }
}
