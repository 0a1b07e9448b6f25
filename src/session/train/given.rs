//! Steps whose loss, and its gradient by the logits, a function of the caller's computes.

use super::loss::LossSum;
use super::objective::Normalize;
use super::run_progress::RunProgress;
use super::{Metrics, StepObjective, Trainer};
use crate::data::{Batch, IGNORE_INDEX};
use crate::error::{Error, Result};
use crate::gpu::{BufferId, LocalFuture, PlanId, Region, Replay, create_checked, submit_checked};
use crate::kernels::{KernelSpec, LogitRow};
use crate::plan::{Buffer, Plan, Range, Slice};
use crate::session::step::StepResult;
use std::cell::Cell;
use std::rc::Rc;

/// Is given the first row and the logits of some rows; gives their gradient and their loss.
pub type RowGradient<'a> = &'a dyn Fn(usize, Vec<f32>) -> LocalFuture<Result<(Vec<f32>, f64)>>;

/// A part of a micro-step, up to the logits of some rows, or to its end.
#[derive(Debug)]
pub(super) struct Piece {
    plan: PlanId,
    logits: Option<Logits>,
}

/// Where the logits of some rows lie, before a cap.
#[derive(Clone, Copy, Debug)]
pub(in crate::session) struct Logits {
    slice: Slice,
    rows: Range,
    row: LogitRow,
    cap: Option<f64>,
}

/// The plan without its loss, cut where the loss was.
pub(in crate::session) fn cut(plan: &Plan) -> Vec<(Plan, Option<Logits>)> {
    let of = |dispatches| Plan { dispatches, products: vec![], ..plan.clone() };
    let (mut pieces, mut dispatches) = (vec![], vec![]);
    for dispatch in &plan.dispatches {
        let (row, cap) = match plan.kernels[dispatch.kernel].spec {
            KernelSpec::LossSumForward(_) => continue,
            KernelSpec::CrossEntropy(spec) => (spec.row, None),
            KernelSpec::ObjectiveCrossEntropy(spec) => (spec.row, spec.cap.map(|cap| cap.0)),
            _ => {
                dispatches.push(dispatch.clone());
                continue;
            }
        };
        let logits = Logits { slice: dispatch.slices[0], rows: dispatch.range, row, cap };
        pieces.push((of(std::mem::take(&mut dispatches)), Some(logits)));
    }
    pieces.push((of(dispatches), None));
    pieces
}

impl Logits {
    pub fn buffer(&self) -> Buffer {
        self.slice.buffer
    }

    /// The first row.
    pub fn first(&self) -> usize {
        self.rows.row0 as usize
    }

    /// How many there are of a batch of so many tokens.
    pub fn rows_of(&self, tokens: usize) -> usize {
        self.rows.rows_of(tokens)
    }

    /// The bytes of these rows, at least of one.
    pub fn region(&self, buffer: BufferId, tokens: usize) -> Region {
        let bytes = (self.rows_of(tokens).max(1) * self.row.stride) as u64 * 4;
        Region { buffer, offset: self.slice.offset, bytes }
    }

    /// Rows as a function sees them, of words as they lie.
    pub fn read(&self, bytes: &[u8]) -> Vec<f32> {
        let words: Vec<f32> = bytemuck::pod_collect_to_vec(bytes);
        let rows = words.chunks(self.row.stride).flat_map(|row| &row[..self.row.vocabulary]);
        rows.map(|&x| self.cap.map_or(x, |cap| (cap * libm::tanh(f64::from(x) / cap)) as f32))
            .collect()
    }

    /// The gradient as it lies, of the logits before a cap.
    pub fn written(&self, gradient: &[f32], logits: &[f32], scale: f32) -> Vec<f32> {
        let slope = |logit: f32| {
            self.cap.map_or(1.0, |cap| {
                let t = f64::from(logit) / cap;
                (1.0 - t * t) as f32
            })
        };
        let vocabulary = self.row.vocabulary;
        let rows = gradient.chunks(vocabulary).zip(logits.chunks(vocabulary));
        let padding = self.row.stride - vocabulary;
        rows.flat_map(|(gradient, logits)| {
            let own = gradient.iter().zip(logits).map(|(g, logit)| scale * g * slope(*logit));
            own.chain(std::iter::repeat_n(0.0, padding)).collect::<Vec<_>>()
        })
        .collect()
    }
}

impl Trainer {
    /// One micro-step that minimises what `gradient` says, over `divisor`. The targets of the batch are not read.
    ///
    /// # Errors
    /// As [`Trainer::step_by`], and what `gradient` gives. A function that fails leaves the step as it was, unless it has
    /// given rows before in the middle of an accumulation: that begins again.
    pub async fn step_given(
        self: &Rc<Self>,
        tokens: Vec<u32>,
        documents: Option<Vec<u32>>,
        divisor: f64,
        gradient: RowGradient<'_>,
    ) -> Result<Metrics> {
        let targets = vec![IGNORE_INDEX; tokens.len()];
        let batch = Batch::new(tokens, targets, documents);
        self.check_rows(&batch)?;
        let normalize = Normalize::Number(divisor);
        let objective = StepObjective { normalize, ..StepObjective::default() };
        objective.check(&batch, self.model.config().vocab_size)?;
        let long = self.is_long(&batch);
        self.install_pieces(long).await?;
        let started = self.model.gpu().now();
        let before = self.in_flight.progress();
        let accumulation = self.options.borrow().gradient_accumulation;
        let (first, last) = (before.micro_step == 0, before.micro_step + 1 >= accumulation);
        let counted = batch.len() as u64 + if first { 0 } else { before.counted };
        let progress = objective.normalized(RunProgress { counted, ..before }, &batch, last)?;
        let learning_rate = self.schedule.get().learning_rate(progress.step);
        let step = self.step_uniform(batch.len(), !first, learning_rate, progress.divisor());
        let gpu = self.model.gpu();
        create_checked(&**gpu, || {
            self.write_batch(&batch)?;
            self.write_step(&step)
        })
        .await?;
        let own = match self.run_pieces(batch.len(), long, step.loss_scale, gradient).await {
            Ok(nats) => LossSum { nats, counted: batch.len() as u64 },
            Err((error, begun)) => {
                if begun {
                    // The gradients of this accumulation, or of the step before, are not what they were.
                    self.in_flight.set(RunProgress { micro_step: 0, counted: 0, ..before });
                }
                return Err(error);
            }
        };
        let after = RunProgress {
            micro_step: if last { 0 } else { before.micro_step + 1 },
            step: before.step + u64::from(last),
            ..progress
        };
        let whole = if first { own } else { self.losses.borrow().get() + own };
        let result = self.update_given([own, whole], after, last).await?;
        Ok(Metrics {
            step: after.step,
            loss: if last { whole } else { own }.over(divisor),
            grad_norm: last.then_some(f64::from(result.grad_norm)),
            learning_rate,
            tokens: batch.len(),
            unfilled: 1.0 - batch.len() as f64 / self.plans.micro_step.tokens as f64,
            milliseconds: gpu.now() - started,
            skipped: last && result.skipped != 0.0,
        })
    }

    /// Tells the GPU the losses of the micro-step and of the step so far; the last micro-step updates the weights.
    async fn update_given(
        &self,
        losses: [LossSum; 2],
        after: RunProgress,
        last: bool,
    ) -> Result<StepResult> {
        let sums = losses.map(|sum| [sum.nats as f32, sum.counted as f32]);
        let optimizer = [Replay::new(self.installed.optimizer, self.plans.optimizer.tokens)];
        if last {
            self.model.changed();
        }
        let gpu = self.model.gpu();
        let read = submit_checked(&**gpu, || {
            let metrics = self.metrics()?;
            gpu.write(metrics.buffer, 0, bytemuck::cast_slice(&sums))?;
            gpu.submit(&optimizer[..usize::from(last)], 1, Some(metrics))
        })?;
        let mut sent = self.in_flight.sent(after, last, 1);
        let read = read.await.map_err(|error| sent.failed(error))?;
        self.losses.replace(Rc::new(Cell::new(losses[1])));
        Ok(bytemuck::pod_read_unaligned(&read))
    }

    /// Binds the pieces of the micro-step, the first time.
    async fn install_pieces(&self, long: bool) -> Result<()> {
        if self.pieces[usize::from(long)].borrow().is_some() {
            return Ok(());
        }
        let (gpu, weights) = (self.model.gpu(), self.model.weights.buffers()?);
        self.buffer(Buffer::Step)?;
        let make = || {
            let mut resources = self.resources.borrow_mut();
            let resources = resources.as_mut().ok_or_else(|| Error::internal("no resources"))?;
            let before = resources.bytes();
            let install = |(plan, logits): (Plan, Option<Logits>)| {
                Ok(Piece { plan: resources.install(&plan, &[&weights])?, logits })
            };
            let pieces = cut(self.micro_step_plan(long)).into_iter().map(install);
            let pieces = pieces.collect::<Result<Vec<_>>>()?;
            let bytes = &self.model.trainer_bytes;
            bytes.set(bytes.get() + resources.bytes() - before);
            Ok(pieces)
        };
        let pieces = create_checked(&**gpu, make).await?;
        self.pieces[usize::from(long)].replace(Some(Rc::new(pieces)));
        Ok(())
    }

    /// The sum of the losses; or the error, and whether gradients may have been written.
    async fn run_pieces(
        &self,
        tokens: usize,
        long: bool,
        scale: f32,
        gradient: RowGradient<'_>,
    ) -> std::result::Result<f64, (Error, bool)> {
        let (mut nats, mut begun) = (0.0, false);
        let pieces = self.pieces[usize::from(long)].borrow().clone();
        for Piece { plan, logits } in pieces.iter().flat_map(|pieces| pieces.iter()) {
            let failed = |error| (error, begun);
            let rows = logits.map_or(0, |logits| logits.rows_of(tokens));
            let region = match logits {
                Some(logits) => {
                    logits.region(self.buffer(logits.buffer()).map_err(failed)?, tokens)
                }
                None => self.metrics().map_err(failed)?,
            };
            let gpu = self.model.gpu();
            let replay = [Replay::new(*plan, tokens)];
            let read =
                submit_checked(&**gpu, || gpu.submit(&replay, self.submits(1.0), Some(region)));
            let read = match read {
                Ok(read) => read.await.map_err(failed)?,
                Err(error) => return Err(failed(error)),
            };
            let Some(logits) = logits.filter(|_| rows > 0) else { continue };
            let values = logits.read(&read);
            let first = logits.first();
            let (slopes, loss) = gradient(first, values.clone()).await.map_err(failed)?;
            if slopes.len() != values.len() {
                return Err(failed(Error::internal(
                    "a gradient has as many numbers as the logits",
                )));
            }
            nats += loss;
            begun = true;
            let words = logits.written(&slopes, &values, scale);
            let write = || gpu.write(region.buffer, region.offset, bytemuck::cast_slice(&words));
            create_checked(&**gpu, write).await.map_err(|error| (error, true))?;
        }
        Ok(nats)
    }
}
