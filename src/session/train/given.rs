//! Steps whose loss, and its gradient by logits or by states, a function of the caller's computes.

use super::loss::LossSum;
use super::objective::Normalize;
use super::run_progress::RunProgress;
use super::{Metrics, PlanChoice, StepObjective, Trainer};
use crate::data::{Batch, IGNORE_INDEX};
use crate::error::{Error, Result};
use crate::gpu::{BufferId, LocalFuture, PlanId, Region, Replay, create_checked, submit_checked};
use crate::kernels::{KernelSpec, LogitRow};
use crate::lower::{scale_plan, zero_plan};
use crate::plan::{Buffer, HeadRows, Plan, Range, Slice};
use crate::session::step::StepResult;
use std::cell::Cell;
use std::rc::Rc;

/// By what a gradient function differentiates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GradientBy {
    /// Logits, some rows of the batch at a time.
    Logits,
    /// The states that the head reads, of all rows at once.
    States,
}

/// What a gradient function is given.
#[derive(Debug)]
pub struct GivenRows {
    /// The first row.
    pub first: usize,
    /// Numbers of each row.
    pub columns: usize,
    pub values: Vec<f32>,
    /// Where it may leave the gradient itself; none where that has to be given.
    pub place: Option<GradientPlace>,
}

/// Where rows of a gradient are on the GPU.
#[derive(Clone, Copy, Debug)]
pub struct GradientPlace {
    pub buffer: BufferId,
    /// Where the first row begins, in bytes.
    pub offset: u64,
    /// Bytes from one row to the next.
    pub row_bytes: u64,
}

/// The gradient of the rows.
#[derive(Debug)]
pub enum GivenGradient {
    Numbers(Vec<f32>),
    /// It has been queued to be written to the [`GradientPlace`].
    Written,
}

/// Gives the gradient of rows, and their loss.
pub type RowGradient<'a> = &'a dyn Fn(GivenRows) -> LocalFuture<Result<(GivenGradient, f64)>>;

/// A part of a micro-step, and what follows it.
#[derive(Debug)]
pub(super) struct Piece {
    /// Each with its rows, where it is not for the whole batch.
    plans: Vec<(PlanId, Option<usize>)>,
    then: Then,
}

/// The pieces of a micro-step for one kind of function, of short documents or of long ones.
#[derive(Clone, Debug)]
pub(super) struct GivenPieces {
    of: (GradientBy, bool),
    pieces: Rc<Vec<Piece>>,
}

/// What is done after a piece.
#[derive(Clone, Copy, Debug)]
enum Then {
    /// The function is given logits.
    Logits(Given),
    /// States are read for it.
    States(HeadRows),
    /// The function is given states.
    Gradient(Given),
    /// The micro-step is over.
    Nothing,
}

/// A gradient that the function gives.
#[derive(Clone, Copy, Debug)]
struct Given {
    rows: Logits,
    /// Multiplies what was written without the scale of the loss.
    scale: PlanId,
    /// The rows that this reaches.
    most: usize,
}

/// Where the logits of some rows are, before a cap, or where the gradient of states is.
#[derive(Clone, Copy, Debug)]
pub(in crate::session) struct Logits {
    slice: Slice,
    rows: Range,
    row: LogitRow,
    cap: Option<f64>,
}

/// Where a plan without its loss is cut.
#[derive(Clone, Copy, Debug)]
pub(in crate::session) enum Cut {
    /// Where the loss of rows was.
    Loss(Logits),
    /// After the gradients of all of them.
    Losses,
}

/// The plan without its loss, cut where the loss was. All else follows the last cut.
pub(in crate::session) fn cut(plan: &Plan) -> Vec<(Plan, Option<Cut>)> {
    let of = |dispatches| Plan { dispatches, products: vec![], ..plan.clone() };
    let (mut pieces, mut dispatches) = (vec![], vec![]);
    for dispatch in &plan.dispatches {
        let (row, cap) = match plan.kernels[dispatch.kernel].spec {
            KernelSpec::LossSumForward(_) => {
                pieces.push((of(std::mem::take(&mut dispatches)), Some(Cut::Losses)));
                continue;
            }
            KernelSpec::CrossEntropy(spec) => (spec.row, None),
            KernelSpec::ObjectiveCrossEntropy(spec) => (spec.row, spec.cap.map(|cap| cap.0)),
            _ => {
                dispatches.push(dispatch.clone());
                continue;
            }
        };
        let logits = Logits { slice: dispatch.slices[0], rows: dispatch.range, row, cap };
        pieces.push((of(std::mem::take(&mut dispatches)), Some(Cut::Loss(logits))));
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

    /// How many of the rows a batch of `tokens` tokens has.
    pub fn rows_of(&self, tokens: usize) -> usize {
        self.rows.rows_of(tokens)
    }

    /// The bytes of these rows, at least of one.
    pub fn region(&self, buffer: BufferId, tokens: usize) -> Region {
        let bytes = (self.rows_of(tokens).max(1) * self.row.stride) as u64 * 4;
        Region { buffer, offset: self.slice.offset, bytes }
    }

    /// The bytes of one logit.
    pub fn number(&self, buffer: BufferId, row: usize, column: usize) -> Region {
        let at = (row - self.first()) * self.row.stride + column;
        Region { buffer, offset: self.slice.offset + at as u64 * 4, bytes: 4 }
    }

    /// Rows as a function sees them, from the GPU's bytes. These may also be a part of one row.
    pub fn read(&self, bytes: &[u8]) -> Vec<f32> {
        let words: Vec<f32> = bytemuck::pod_collect_to_vec(bytes);
        let of = |row: &[f32]| row[..row.len().min(self.row.vocabulary)].to_vec();
        let rows = words.chunks(self.row.stride).flat_map(of);
        rows.map(|x| self.cap.map_or(x, |cap| (cap * libm::tanh(f64::from(x) / cap)) as f32))
            .collect()
    }

    /// The derivative of a logit by what it was before a cap.
    pub fn slope(&self, logit: f32) -> f32 {
        self.cap.map_or(1.0, |cap| {
            let t = f64::from(logit) / cap;
            (1.0 - t * t) as f32
        })
    }

    /// The gradient of the logits before a cap, as the GPU stores it.
    pub fn written(&self, gradient: &[f32], logits: &[f32], scale: f32) -> Vec<f32> {
        let vocabulary = self.row.vocabulary;
        let rows = gradient.chunks(vocabulary).zip(logits.chunks(vocabulary));
        let padding = self.row.stride - vocabulary;
        rows.flat_map(|(gradient, logits)| {
            let own = gradient.iter().zip(logits).map(|(g, logit)| scale * g * self.slope(*logit));
            own.chain(std::iter::repeat_n(0.0, padding)).collect::<Vec<_>>()
        })
        .collect()
    }
}

impl Trainer {
    /// One micro-step that minimises what `gradient` says, over `divisor`. The targets of the batch are not read.
    ///
    /// By logits it is asked for some rows at a time, in order; by states once.
    ///
    /// # Errors
    /// As [`Trainer::step_by`], and what `gradient` gives. A function that fails leaves the step as it was, unless it has
    /// given rows before in the middle of an accumulation: that begins again.
    pub async fn step_given(
        self: &Rc<Self>,
        tokens: Vec<u32>,
        documents: Option<Vec<u32>>,
        divisor: f64,
        (by, gradient): (GradientBy, RowGradient<'_>),
    ) -> Result<Metrics> {
        let targets = vec![IGNORE_INDEX; tokens.len()];
        let batch = Batch::new(tokens, targets, documents);
        self.check_rows(&batch)?;
        let normalize = Normalize::Number(divisor);
        let objective = StepObjective { normalize, ..StepObjective::default() };
        objective.check(&batch, self.model.config().vocab_size)?;
        let long = self.is_long(&batch);
        let pieces = self.pieces(by, long).await?;
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
        let own = match self.run_pieces(&pieces, batch.len(), step.loss_scale, gradient).await {
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

    /// Writes the losses of the micro-step and of the step until now. The last micro-step updates the weights.
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

    /// The pieces of the micro-step, bound when they are asked for the first time.
    async fn pieces(&self, by: GradientBy, long: bool) -> Result<Rc<Vec<Piece>>> {
        self.buffer(Buffer::Step)?;
        let known = self.given_pieces.borrow().iter().find(|known| known.of == (by, long)).cloned();
        if let Some(known) = known {
            return Ok(known.pieces);
        }
        let (gpu, weights) = (self.model.gpu(), self.model.weights.buffers()?);
        let make = || {
            let mut resources = self.resources.borrow_mut();
            let resources = resources.as_mut().ok_or_else(|| Error::internal("no resources"))?;
            let before = resources.bytes();
            let mut install = |plan: &Plan| resources.install(plan, &[&weights]);
            let choice = PlanChoice { steered: None, long };
            let plan = self.micro_step_plan(&choice);
            let pieces = match by {
                GradientBy::Logits => self.pieces_by_logits(plan, &mut install),
                GradientBy::States => self.pieces_by_states(plan, &mut install),
            }?;
            let bytes = &self.model.trainer_bytes;
            bytes.set(bytes.get() + resources.bytes() - before);
            Ok(Rc::new(pieces))
        };
        let pieces = create_checked(&**gpu, make).await?;
        let made = GivenPieces { of: (by, long), pieces: Rc::clone(&pieces) };
        self.given_pieces.borrow_mut().push(made);
        Ok(pieces)
    }

    fn pieces_by_logits(&self, plan: &Plan, install: Install<'_>) -> Result<Vec<Piece>> {
        let (mut pieces, mut plans) = (vec![], vec![]);
        for (piece, cut) in cut(plan) {
            plans.push((install(&piece)?, None));
            let then = match cut {
                Some(Cut::Loss(logits)) => Then::Logits(self.given(logits, install)?),
                Some(Cut::Losses) => continue,
                None => Then::Nothing,
            };
            pieces.push(Piece { plans: std::mem::take(&mut plans), then });
        }
        Ok(pieces)
    }

    /// The gradient by logits is zeros: so is what the head leaves for its weight, which the optimizer reads, and for the
    /// states, until theirs is put in its place.
    fn pieces_by_states(&self, plan: &Plan, install: Install<'_>) -> Result<Vec<Piece>> {
        let unlike = || Error::internal("a micro-step has a head with gradients");
        let head = plan.head.ok_or_else(unlike)?;
        let hidden = self.model.config().hidden_size;
        let gradient = Logits {
            slice: head.gradient.ok_or_else(unlike)?,
            rows: Range { row0: 0, rows: plan.tokens as u32, col0: 0, cols: 0 },
            row: LogitRow { vocabulary: hidden, stride: hidden },
            cap: None,
        };
        let (mut pieces, mut plans) = (vec![], vec![]);
        for (piece, cut) in cut(plan) {
            plans.push((install(&piece)?, None));
            let then = match cut {
                Some(Cut::Loss(logits)) => {
                    let zero = zero_plan(self.model.gpu().capabilities(), logits.slice)?;
                    if pieces.is_empty() {
                        let plans = std::mem::take(&mut plans);
                        pieces.push(Piece { plans, then: Then::States(head) });
                    }
                    plans.push((install(&zero)?, Some(1)));
                    continue;
                }
                Some(Cut::Losses) => Then::Gradient(self.given(gradient, install)?),
                None => Then::Nothing,
            };
            pieces.push(Piece { plans: std::mem::take(&mut plans), then });
        }
        Ok(pieces)
    }

    fn given(&self, rows: Logits, install: Install<'_>) -> Result<Given> {
        let (caps, stride) = (self.model.gpu().capabilities(), rows.row.stride);
        let scale = scale_plan(caps, rows.slice, stride, 1.0 / self.nominal_tokens())?;
        let most = rows.slice.bytes as usize / 4 / stride;
        Ok(Given { rows, scale: install(&scale)?, most })
    }

    /// The sum of the losses; or the error, and whether gradients may have been written.
    async fn run_pieces(
        &self,
        pieces: &[Piece],
        tokens: usize,
        scale: f32,
        gradient: RowGradient<'_>,
    ) -> std::result::Result<f64, (Error, bool)> {
        let (mut nats, mut begun, mut states) = (0.0, false, vec![]);
        for piece in pieces {
            let read = self.run_piece(piece, tokens).await.map_err(|error| (error, begun))?;
            let of = match piece.then {
                Then::States(_) => {
                    states = bytemuck::pod_collect_to_vec(&read);
                    continue;
                }
                Then::Logits(given) if given.rows.rows_of(tokens) > 0 => {
                    (given, given.rows.read(&read))
                }
                // What the head has left of the step before is gone.
                Then::Gradient(given) => {
                    begun = true;
                    (given, std::mem::take(&mut states))
                }
                Then::Logits(_) | Then::Nothing => continue,
            };
            nats += self.give(of, scale, gradient, &mut begun).await.map_err(|e| (e, begun))?;
        }
        Ok(nats)
    }

    /// Runs a piece, and reads what the next part needs.
    async fn run_piece(&self, piece: &Piece, tokens: usize) -> Result<Vec<u8>> {
        let region = match piece.then {
            Then::Logits(Given { rows, .. }) => rows.region(self.buffer(rows.buffer())?, tokens),
            Then::States(HeadRows { states, .. }) => {
                let bytes = (tokens * self.model.config().hidden_size) as u64 * 4;
                Region { buffer: self.buffer(states.buffer)?, offset: states.offset, bytes }
            }
            Then::Gradient(_) | Then::Nothing => self.metrics()?,
        };
        let of =
            |&(plan, rows): &(PlanId, Option<usize>)| Replay::new(plan, rows.unwrap_or(tokens));
        let replays: Vec<_> = piece.plans.iter().map(of).collect();
        let gpu = &**self.model.gpu();
        submit_checked(gpu, || gpu.submit(&replays, self.submits(1.0), Some(region)))?.await
    }

    /// Asks for the gradient by some rows and puts it in its place. Gives their loss.
    async fn give(
        &self,
        (Given { rows, scale: plan, most }, values): (Given, Vec<f32>),
        scale: f32,
        gradient: RowGradient<'_>,
        begun: &mut bool,
    ) -> Result<f64> {
        let gpu = self.model.gpu();
        let (buffer, columns) = (self.buffer(rows.buffer())?, rows.row.vocabulary);
        let at = GradientPlace {
            buffer,
            offset: rows.slice.offset,
            row_bytes: rows.row.stride as u64 * 4,
        };
        let place = rows.cap.is_none().then_some(at);
        let asked = GivenRows { first: rows.first(), columns, values: values.clone(), place };
        let (given, loss) = gradient(asked).await?;
        match given {
            GivenGradient::Numbers(slopes) if slopes.len() == values.len() => {
                *begun = true;
                let words = rows.written(&slopes, &values, scale);
                create_checked(&**gpu, || {
                    gpu.write(buffer, rows.slice.offset, bytemuck::cast_slice(&words))
                })
                .await?;
            }
            GivenGradient::Numbers(_) => {
                return Err(Error::internal("a gradient has as many numbers as its rows"));
            }
            GivenGradient::Written => {
                *begun = true;
                submit_checked(&**gpu, || gpu.submit(&[Replay::new(plan, most)], 1, None))?.await?;
            }
        }
        Ok(loss)
    }
}

/// Binds a plan to the trainer's buffers.
type Install<'a> = &'a mut dyn FnMut(&Plan) -> Result<PlanId>;
