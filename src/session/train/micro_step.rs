//! One micro-step: its uniform, its submits, and what it reports.

use super::loss::LossSum;
use super::objective::SteeredPlans;
use super::plans::TrainerPlans;
use super::{StepObjective, Trainer};
use crate::data::Batch;
use crate::error::{Error, ErrorCode, Result};
use crate::gpu::{LocalFuture, Replay, queue_checked};
use crate::lower::TrainPlans;
use crate::plan::{Buffer, Dispatch, Phase};
use crate::random::split;
use crate::session::step::{Step, StepResult};
use crate::session::throughput::{MOST_SUBMITS, SUBMIT_MILLISECONDS};
use std::rc::Rc;

/// This many dispatches of a long step keep an idle GPU busy until the next ones are encoded.
const FIRST_DISPATCHES: usize = 4;
/// Longer steps gain by that submit. Steps of 3 to 11 ms lost up to 0.1 ms (H200, Chromium).
const FIRST_SUBMIT_MILLISECONDS: f64 = 15.0;

/// Submits that a step's replays are sent in. The GPU may refuse one and run the others.
pub(super) fn step_submits(replays: &[Replay], submits: usize) -> usize {
    let own = |replay: &Replay| replay.early_submits() + usize::from(replay.copy_before.is_some());
    if submits > 1 { submits } else { 1 + replays.iter().map(own).sum::<usize>() }
}

/// What a step reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metrics {
    /// Optimizer steps so far, this one included once its last micro-step is done.
    pub step: u64,
    /// The sum in nats of the objective, which is cross-entropy with label smoothing and z-loss in it, over the counted
    /// targets, or what the step's own objective says: of the whole step on its last micro-step, of this micro-step on
    /// the others.
    pub loss: f64,
    /// Global norm of the averaged gradients before clipping; none before the last micro-step.
    pub grad_norm: Option<f64>,
    pub learning_rate: f64,
    /// Tokens in this call.
    pub tokens: usize,
    /// The share of the places for tokens in this call that no token took.
    pub unfilled: f64,
    pub milliseconds: f64,
    /// The loss or the norm was not finite, and the weights are as they were.
    pub skipped: bool,
}

impl Trainer {
    /// One micro-step; the last of an accumulation also updates the weights.
    ///
    /// # Errors
    /// `invalid-tokens`, `freed`, `device-lost`, and [`ErrorCode::Unread`] where the step is done but its result did not
    /// arrive.
    pub async fn step(self: &Rc<Self>, batch: &Batch) -> Result<Metrics> {
        self.queue_step((batch, &StepObjective::default()), None, 0)?.await
    }

    /// As [`Trainer::step`], with an objective of the step's own.
    ///
    /// # Errors
    /// As [`Trainer::step`]; `invalid-options` for an objective that cannot be, and where micro-steps of one step differ
    /// in what they are divided by; `out-of-memory`, `limit-exceeded` where it needs buffers of its own.
    pub async fn step_by(
        self: &Rc<Self>,
        batch: &Batch,
        objective: &StepObjective,
    ) -> Result<Metrics> {
        self.check(batch)?;
        objective.check(batch, self.model.config().vocab_size)?;
        let plans = self.steered(objective.steering()).await?;
        self.queue_step((batch, objective), plans, 0)?.await
    }

    /// Queues a micro-step after those that are in flight, and moves the cursor by `drawn` batches. Its time counts
    /// from the end of the one before it. If it fails, the progress is as if it had not been queued.
    pub(super) fn queue_step(
        self: &Rc<Self>,
        (batch, objective): (&Batch, &StepObjective),
        steered: Option<Rc<SteeredPlans>>,
        drawn: u64,
    ) -> Result<LocalFuture<Result<Metrics>>> {
        self.buffer(Buffer::Step)?;
        self.check(batch)?;
        let started = self.model.gpu().now();
        let (progress, own) = (self.in_flight.progress(), batch.counted() as u64);
        let first = progress.micro_step == 0;
        let last = progress.micro_step + 1 >= self.options.borrow().gradient_accumulation;
        let progress = objective.normalized(progress.with_targets(own), batch, last)?;
        let (divisor, own_divisor) = (progress.divisor(), objective.own_divisor(batch));
        let learning_rate = self.schedule.get().learning_rate(progress.step);
        let tokens = batch.len();
        let step = self.step_uniform(tokens, !first, learning_rate, divisor);
        let share = tokens as f64 / self.plans.micro_step.tokens as f64;
        let plans = steered.as_ref().map_or(self.installed, |steered| steered.installed);
        let replays = &self.replays(batch, plans, share)[..1 + usize::from(last)];
        if last {
            self.model.changed();
        }
        let base = self.model.weights.base_version();
        let submits = self.submits(share);
        let (read, accepted) = queue_checked(&**self.model.gpu(), || {
            self.write(batch, objective, steered)?;
            self.write_step(&step)?;
            self.model.gpu().submit(replays, submits, Some(self.metrics()?))
        })?;
        let progress = progress.after_micro_step(last, drawn);
        let mut sent = self.in_flight.sent(progress, last, step_submits(replays, submits));
        if first {
            self.losses.take();
        }
        let (trainer, losses) = (Rc::clone(self), Rc::clone(&self.losses.borrow()));
        Ok(Box::pin(async move {
            let read = read.await;
            // After the read: a lost device fails this too, so a step counts as done only if the device lives.
            accepted.await.map_err(|error| sent.failed(error))?;
            trainer.rounded.set(base);
            drop(sent); // done, even where its result does not arrive
            let result: StepResult = bytemuck::pod_read_unaligned(&read.map_err(unread)?);
            let own = LossSum { nats: f64::from(result.loss), counted: own };
            let on_gpu = LossSum { nats: f64::from(result.total_loss), counted: progress.counted };
            losses.set(losses.get().through(own, on_gpu));
            let milliseconds = trainer.took(started, share);
            Ok(Metrics {
                step: progress.step,
                loss: if last { losses.get().over(divisor) } else { own.over(own_divisor) },
                grad_norm: last.then_some(f64::from(result.grad_norm)),
                learning_rate,
                tokens,
                unfilled: 1.0 - share,
                milliseconds,
                skipped: last && result.skipped != 0.0,
            })
        }))
    }

    /// Writes a batch and what it is trained by.
    fn write(
        &self,
        batch: &Batch,
        objective: &StepObjective,
        steered: Option<Rc<SteeredPlans>>,
    ) -> Result<()> {
        self.write_batch(batch)?;
        self.batch_plan.borrow_mut().steered = steered;
        self.write_objective(objective, batch.len())
    }

    /// Milliseconds of a micro-step that ends now and was `share` of a full one. They count from when it was queued, or from
    /// the end of the micro-step that it waited for.
    pub(super) fn took(&self, started: f64, share: f64) -> f64 {
        let ended = self.model.gpu().now();
        let milliseconds = ended - started.max(self.ended.replace(ended));
        self.learn(milliseconds, share);
        milliseconds
    }

    /// The micro-step and the update.
    ///
    /// An idle GPU gets the forward pass before the rest is encoded: on an H100 an awaited step of 458 dispatches took
    /// 2.3 ms longer than its kernels. If the step is long, a few dispatches go even before that. The update comes
    /// last, after the copy of what the step reports. So a caller that awaits the report can prepare the next step
    /// meanwhile.
    ///
    /// The weights of an adapter's base are rounded to f16 once for each of their versions.
    pub(super) fn replays(&self, batch: &Batch, plans: TrainerPlans, share: f64) -> [Replay; 2] {
        let TrainPlans { micro_step, optimizer, .. } = &self.plans;
        let plan = plans.micro_step_of(self.is_long(batch));
        let base = self.model.weights.base_version();
        let is_rounded = base.is_some() && self.rounded.get() == base;
        let from = if is_rounded { self.plans.rounding } else { 0 };
        let step = Replay { from, ..Replay::new(plan, batch.len()) };
        let update = Replay::new(self.installed.optimizer, optimizer.tokens);
        if self.model.gpu().capabilities().software || self.in_flight.busy() {
            return [step, update];
        }
        let forward = |dispatch: &&Dispatch| dispatch.phase == Phase::Forward;
        let early = micro_step.dispatches.iter().take_while(forward).count();
        let reports =
            |dispatch: &Dispatch| dispatch.slices.iter().any(|s| s.buffer == Buffer::Metrics);
        let reported = optimizer.dispatches.iter().rposition(reports).map_or(0, |last| last + 1);
        let gains = self.expected.get() * share > FIRST_SUBMIT_MILLISECONDS;
        let first = if gains { from + FIRST_DISPATCHES } else { 0 };
        let copy_before = (reported < optimizer.dispatches.len()).then_some(reported);
        [step.sent_early(early, first), Replay { copy_before, ..update }]
    }

    /// Submits that this share of a full micro-step is cut into.
    pub(super) fn submits(&self, share: f64) -> usize {
        let submits = (self.expected.get() * share / SUBMIT_MILLISECONDS).ceil();
        submits.clamp(1.0, MOST_SUBMITS as f64) as usize
    }

    /// Learns from the time of a step that was `share` of a full one. A short step changes the expectation less, because
    /// what every step takes, however few its tokens, is more of its time.
    pub(super) fn learn(&self, milliseconds: f64, share: f64) {
        let expected = self.expected.get();
        self.expected.set(expected + 0.5 * (milliseconds - share * expected));
    }

    pub(super) fn write_step(&self, step: &Step) -> Result<()> {
        self.model.gpu().write(self.buffer(Buffer::Step)?, 0, bytemuck::bytes_of(step))
    }

    pub(super) fn step_uniform(
        &self,
        tokens: usize,
        accumulate: bool,
        learning_rate: f64,
        divisor: f64,
    ) -> Step {
        let (options, progress) = (self.options.borrow(), self.in_flight.progress());
        let optimizer = options.optimizer();
        let nominal = self.nominal_tokens();
        Step {
            tokens: tokens as u32,
            accumulate: u32::from(accumulate),
            draws: progress.draws(options.gradient_accumulation),
            reserved: split(options.seed),
            learning_rate: learning_rate as f32,
            loss_scale: (1.0 / nominal) as f32,
            gradient_scale: if divisor > 0.0 { (nominal / divisor) as f32 } else { 0.0 },
            max_grad_norm: options.max_grad_norm.map_or(f32::MAX, |norm| norm as f32),
            weight_decay: options.weight_decay as f32,
            carried: optimizer.carried_terms(),
            numbers: optimizer.uniform(),
            ..Step::default()
        }
    }

    /// Gradients in memory are those of the sum of a micro-step's losses, divided by this.
    pub(super) fn nominal_tokens(&self) -> f64 {
        self.plans.micro_step.tokens as f64 / self.plans.gradient_unit
    }
}

/// The error of a step that is done, whose result did not arrive.
pub(super) fn unread(error: Error) -> Error {
    let internal = error.code == ErrorCode::Internal;
    Error { code: if internal { ErrorCode::Unread } else { error.code }, ..error }
}
