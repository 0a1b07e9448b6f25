//! Training: options, micro-steps, evaluation, gradients, state.

mod average;
mod batch;
mod dataset;
pub(super) mod given;
mod in_flight;
mod loss;
pub(super) mod objective;
mod options;
mod profile;
pub(super) mod resume;
mod run_progress;
mod save;
mod state;
mod tune;

use given::GivenPieces;
pub use given::{GivenGradient, GivenRows, GradientBy, GradientPlace, RowGradient};
use in_flight::StepsInFlight;
use loss::LossSum;
use objective::SteeredPlans;
pub use objective::{Normalize, SoftTargets, StepObjective};
pub use options::{DropoutOptions, Precision, TrainerOptions};
use run_progress::RunProgress;
pub(super) use state::{TrainerState, saved_sets};
use tune::tune;

use super::memory::{self, MemoryBytes, Purpose};
use super::model::Model;
use super::progress::Progress;
use super::resources::Resources;
use super::step::{Step, StepResult, rope_tables, write_rope_tables};
use super::throughput::{MOST_SUBMITS, SUBMIT_MILLISECONDS, first_guess};
use super::weights::tensor_at;
use super::weights::tensor_storage::TensorStorage;
use crate::caps::Capabilities;
use crate::data::Batch;
use crate::error::{Error, ErrorCode, Result};
use crate::gpu::{Gpu, LocalFuture, PlanId, Region, Replay, create_checked, queue_checked};
use crate::kernels::{Steering, TunedProduct, Wgsl};
use crate::lower::{TrainChoices, TrainPlans, train_plans};
use crate::params::Params;
use crate::plan::{Buffer, Dispatch, METRICS_BYTES, Phase, Plan, PlanRow, buffers};
use crate::random::split;
use crate::schedule::Schedule;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

/// An idle GPU is busy with so many dispatches of a long step until the next ones are encoded.
const FIRST_DISPATCHES: usize = 4;
/// Longer steps gain by that submit. Steps of 3 to 11 ms lost up to 0.1 ms (H200, Chromium).
const FIRST_SUBMIT_MILLISECONDS: f64 = 15.0;

/// Submits that a step's replays are sent in. The GPU may refuse one and run the others.
fn pieces(replays: &[Replay], submits: usize) -> usize {
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

/// The plans of [`TrainPlans`], installed.
#[derive(Clone, Copy, Debug)]
struct TrainerPlans {
    micro_step: PlanId,
    optimizer: PlanId,
    evaluate: PlanId,
    averages: Option<PlanId>,
    /// The micro-step of batches with long documents, if it has a plan of its own.
    long: Option<PlanId>,
}

impl TrainerPlans {
    fn micro_step_of(&self, long: bool) -> PlanId {
        self.long.filter(|_| long).unwrap_or(self.micro_step)
    }
}

/// Says which plan of a micro-step is meant.
#[derive(Clone, Debug, Default)]
struct MicroStep {
    /// Of another loss than the trainer's own.
    steered: Option<Rc<SteeredPlans>>,
    /// Of long documents.
    long: bool,
}

/// Trains a model. Holds gradients, moments and activations on the GPU.
#[derive(Debug)]
pub struct Trainer {
    pub(super) model: Rc<Model>,
    pub(super) resources: RefCell<Option<Resources>>,
    plans: TrainPlans,
    installed: TrainerPlans,
    /// Those of other losses, once a step has asked for them.
    steered_plans: RefCell<Vec<Rc<SteeredPlans>>>,
    /// The micro-steps cut for gradient functions, of short documents or of long ones, once a step has asked for them.
    given_pieces: RefCell<Vec<GivenPieces>>,
    /// Whether averages and weights have changed places.
    exchanged: Cell<bool>,
    options: RefCell<TrainerOptions>,
    schedule: Cell<Schedule>,
    in_flight: Rc<StepsInFlight>,
    /// Of the accumulation that was queued last; micro-steps in flight keep their own.
    losses: RefCell<Rc<Cell<LossSum>>>,
    /// Tokens of the batch in the buffer; none before the first.
    batch_tokens: Cell<usize>,
    /// Which plan it is for.
    batch_kind: RefCell<MicroStep>,
    /// What [`Trainer::plan`] last listed: rows of [`Trainer::wgsl`] are of that list.
    listed: RefCell<MicroStep>,
    /// The last batch as it was written, and as it was drawn from a dataset: their memory serves the
    /// next ones.
    batch_words: RefCell<Vec<u32>>,
    drawn: RefCell<Batch>,
    /// Expected milliseconds of a full micro-step with its optimizer step.
    expected: Cell<f64>,
    /// When the last micro-step ended.
    ended: Cell<f64>,
}

impl Trainer {
    /// Compiles the training plans and allocates what they need.
    ///
    /// # Errors
    /// `invalid-options`, `limit-exceeded`, `out-of-memory`, `freed`, `device-lost`, `aborted`.
    pub async fn create(
        model: &Rc<Model>,
        options: TrainerOptions,
        progress: Progress<'_>,
    ) -> Result<Rc<Self>> {
        let schedule = options.validate()?;
        let options = options.filled(model.config().dropout);
        progress.report(0, 5, "measure products")?;
        let gpu = Rc::clone(model.gpu());
        let plans = Self::tuned(model, &options, Steering::Nothing).await?;
        let asked = MemoryBytes::of_plans(model.layout(), plans.all());
        memory::check_memory(&*gpu, Purpose::Trainer, &asked)?;
        progress.report(1, 5, "compile kernels")?;
        gpu.prepare(&plans.all()).await;
        let weights = model.weights.buffers()?;
        progress.report(2, 5, "allocate")?;
        // Again: others may have allocated while kernels were compiled.
        memory::check_memory(&*gpu, Purpose::Trainer, &asked)?;
        let allocated = create_checked(&*gpu, || Self::allocate(model, &weights, &plans)).await;
        let mut resources =
            allocated.map_err(|error| memory::explained(error, Purpose::Trainer, &asked))?;
        Self::write_rope(model, &resources, options.tokens_per_step).await?;
        // One after the other, since a CPU compiles here what another adapter has compiled above.
        let mut install = async |plan, done| {
            progress.report(done, 5, "compile kernels")?;
            create_checked(&*gpu, || resources.install(plan, &[&weights])).await
        };
        let installed = TrainerPlans {
            micro_step: install(&plans.micro_step, 2).await?,
            optimizer: install(&plans.optimizer, 3).await?,
            evaluate: install(&plans.evaluate, 4).await?,
            averages: match &plans.averages {
                Some(plan) => Some(install(plan, 4).await?),
                None => None,
            },
            long: match &plans.long {
                Some(plan) => Some(install(plan, 4).await?),
                None => None,
            },
        };
        progress.report(5, 5, "compile kernels")?;
        model.trainer_bytes.set(model.trainer_bytes.get() + resources.bytes());
        // A guess for the first step, replaced by what it takes: a slow GPU, or a CPU.
        let expected = plans.micro_step.flops() / first_guess(gpu.capabilities()) * 1e3;
        let trainer = Rc::new(Self {
            model: Rc::clone(model),
            resources: RefCell::new(Some(resources)),
            plans,
            installed,
            steered_plans: RefCell::default(),
            given_pieces: RefCell::default(),
            exchanged: Cell::new(false),
            options: RefCell::new(options),
            schedule: Cell::new(schedule),
            in_flight: Rc::default(),
            losses: RefCell::default(),
            batch_tokens: Cell::new(0),
            batch_kind: RefCell::default(),
            listed: RefCell::default(),
            batch_words: RefCell::default(),
            drawn: RefCell::default(),
            expected: Cell::new(expected),
            ended: Cell::new(f64::NEG_INFINITY),
        });
        trainer.begin_averages().await?;
        Ok(trainer)
    }

    /// The plans, with the tiles that are fastest on this GPU.
    async fn tuned(
        model: &Model,
        options: &TrainerOptions,
        steering: Steering,
    ) -> Result<TrainPlans> {
        let choices = options.choices(model.config().dropout, steering);
        let plans = Self::planned(model, choices, None)?;
        let tuned = tune(model.gpu(), &plans.micro_step.products).await?;
        if tuned.is_empty() { Ok(plans) } else { Self::planned(model, choices, Some(tuned)) }
    }

    /// The plans, with tiles of products that were measured. What cannot have room is refused.
    fn planned(
        model: &Model,
        choices: TrainChoices,
        tuned: Option<Vec<TunedProduct>>,
    ) -> Result<TrainPlans> {
        let gpu = &**model.gpu();
        let plans = match tuned {
            Some(tuned) => {
                let caps = Capabilities { tuned, ..gpu.capabilities().clone() };
                train_plans(&caps, model.layout(), choices)?
            }
            None => train_plans(gpu.capabilities(), model.layout(), choices)?,
        };
        let asked = MemoryBytes::of_plans(model.layout(), plans.all());
        memory::check_memory(gpu, Purpose::Trainer, &asked)?;
        Ok(plans)
    }

    fn allocate(model: &Model, weights: &Resources, plans: &TrainPlans) -> Result<Resources> {
        let mut resources = Resources::new(model.gpu());
        resources.allocate(&buffers(plans.all()), &[weights])?;
        Ok(resources)
    }

    /// The rotations of each position that a step may have.
    async fn write_rope(model: &Model, resources: &Resources, tokens: usize) -> Result<()> {
        let architecture = &model.layout().architecture;
        let positions = 0..tokens.min(architecture.positions);
        let tables = rope_tables(resources, architecture)?;
        write_rope_tables(&**model.gpu(), tables, positions, false).await
    }

    pub fn model(&self) -> &Rc<Model> {
        &self.model
    }

    /// The layout of gradients and moments: of the weights that are trained.
    pub fn layout(&self) -> &Rc<Params> {
        &self.plans.state
    }

    /// The options in force, defaults filled in.
    pub fn options(&self) -> TrainerOptions {
        self.options.borrow().clone()
    }

    /// Frees gradients, moments and activations. Every later use fails with code `freed`.
    pub fn free(&self) {
        if let Some(resources) = self.resources.replace(None) {
            self.model.trainer_bytes.set(self.model.trainer_bytes.get() - resources.bytes());
        }
    }

    pub(super) fn buffer(&self, name: Buffer) -> Result<crate::gpu::BufferId> {
        self.model.weights.buffers()?;
        let resources = self.resources.borrow();
        let freed = || {
            Error::new(ErrorCode::Freed, "this trainer has been freed; create or resume it again")
        };
        resources.as_ref().ok_or_else(freed)?.get(name)
    }

    /// The region of [`Buffer::Metrics`].
    fn metrics(&self) -> Result<Region> {
        Ok(Region { buffer: self.buffer(Buffer::Metrics)?, offset: 0, bytes: METRICS_BYTES })
    }

    pub(super) fn progress(&self) -> RunProgress {
        self.in_flight.progress()
    }

    pub(super) fn restore(&self, progress: RunProgress, losses: LossSum) {
        self.in_flight.set(progress);
        self.losses.replace(Rc::new(Cell::new(losses)));
    }

    /// Optimizer steps done, those in flight among them.
    pub fn steps(&self) -> u64 {
        self.in_flight.progress().step
    }

    /// Changes the peak of the learning rate, from the next step on.
    ///
    /// # Errors
    /// `invalid-options`, also when `min_learning_rate` was given and is above it.
    pub fn set_learning_rate(&self, learning_rate: f64) -> Result<()> {
        self.change(|options| options.learning_rate = learning_rate)
    }

    /// Steps for the schedule to decay over, when they become known after creation; none: no decay.
    pub fn set_total_steps(&self, total_steps: Option<u64>) -> Result<()> {
        self.change(|options| options.total_steps = total_steps)
    }

    /// Changes the options of the schedule.
    fn change(&self, change: impl FnOnce(&mut TrainerOptions)) -> Result<()> {
        let mut changed = self.options();
        change(&mut changed);
        self.schedule.set(changed.validate()?);
        self.options.replace(changed);
        Ok(())
    }

    /// The schedule in force.
    pub fn schedule(&self) -> Schedule {
        self.schedule.get()
    }

    /// One micro-step; the last of an accumulation also updates the weights.
    ///
    /// # Errors
    /// `invalid-tokens`, `freed`, `device-lost`, and [`ErrorCode::Unread`] where the step is done but its result did not
    /// arrive.
    pub async fn step(self: &Rc<Self>, batch: &Batch) -> Result<Metrics> {
        self.queue_step((batch, &StepObjective::default()), None, 0)?.await
    }

    /// The same with an objective of the step's own.
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

    /// Queues a micro-step behind those that are in flight, which moves the cursor by `drawn`
    /// batches. Its time counts from the end of the one before it. If it fails, the progress is as if it
    /// had not been.
    fn queue_step(
        self: &Rc<Self>,
        (batch, objective): (&Batch, &StepObjective),
        steered: Option<Rc<SteeredPlans>>,
        drawn: u64,
    ) -> Result<LocalFuture<Result<Metrics>>> {
        self.buffer(Buffer::Step)?;
        self.check(batch)?;
        let started = self.model.gpu().now();
        let (mut progress, own) = (self.in_flight.progress(), batch.counted() as u64);
        let accumulation = self.options.borrow().gradient_accumulation;
        let first = progress.micro_step == 0;
        let last = progress.micro_step + 1 >= accumulation;
        progress.counted = own + if first { 0 } else { progress.counted };
        let mut progress = objective.normalized(progress, batch, last)?;
        let (divisor, own_divisor) = (progress.divisor(), objective.own_divisor(batch));
        let learning_rate = self.schedule.get().learning_rate(progress.step);
        let tokens = batch.len();
        let step = self.step_uniform(tokens, !first, learning_rate, divisor);
        let share = tokens as f64 / self.plans.micro_step.tokens as f64;
        let plans = steered.as_ref().map_or(self.installed, |steered| steered.installed);
        let replays = self.replays(batch, plans, share);
        let replays = &replays[..1 + usize::from(last)];
        if last {
            self.model.changed();
        }
        let submits = self.submits(share);
        let (read, accepted) = queue_checked(&**self.model.gpu(), || {
            self.write_batch(batch)?;
            self.batch_kind.borrow_mut().steered = steered;
            self.write_objective(objective, tokens)?;
            self.write_step(&step)?;
            self.model.gpu().submit(replays, submits, Some(self.metrics()?))
        })?;
        progress.micro_step = if last { 0 } else { progress.micro_step + 1 };
        progress.step += u64::from(last);
        progress.cursor += drawn;
        let mut sent = self.in_flight.sent(progress, last, pieces(replays, submits));
        if first {
            self.losses.take();
        }
        let losses = Rc::clone(&self.losses.borrow());
        let trainer = Rc::clone(self);
        Ok(Box::pin(async move {
            let read = read.await;
            // Behind the read: a lost device fails this too, so a step counts as done only if the device lives.
            accepted.await.map_err(|error| sent.failed(error))?;
            drop(sent); // done, even where its result does not arrive
            let result: StepResult = bytemuck::pod_read_unaligned(&read.map_err(unread)?);
            let own = LossSum { nats: f64::from(result.loss), counted: own };
            let on_gpu = LossSum { nats: f64::from(result.total_loss), counted: progress.counted };
            let whole = losses.get().through(own, on_gpu);
            losses.set(whole);
            let milliseconds = trainer.took(started, share);
            Ok(Metrics {
                step: progress.step,
                loss: if last { whole.over(divisor) } else { own.over(own_divisor) },
                grad_norm: last.then_some(f64::from(result.grad_norm)),
                learning_rate,
                tokens,
                unfilled: 1.0 - share,
                milliseconds,
                skipped: last && result.skipped != 0.0,
            })
        }))
    }

    /// Milliseconds of a micro-step that ends now: since it was queued or, where it waited for another, since that
    /// ended. It was `share` of a full one.
    fn took(&self, started: f64, share: f64) -> f64 {
        let ended = self.model.gpu().now();
        let milliseconds = ended - started.max(self.ended.replace(ended));
        self.learn(milliseconds, share);
        milliseconds
    }

    /// The micro-step and the update. An idle GPU gets the forward pass first, since it would wait for the whole step's
    /// encoding: on an H100 an awaited step of 458 dispatches took 2.3 ms longer than its kernels. If the step is long,
    /// it gets a few dispatches before that. It gets the update
    /// last, behind the copy of what the step reports: whoever awaits that can prepare the next step meanwhile.
    fn replays(&self, batch: &Batch, plans: TrainerPlans, share: f64) -> [Replay; 2] {
        let TrainPlans { micro_step, optimizer, .. } = &self.plans;
        let plan = plans.micro_step_of(self.is_long(batch));
        let step = Replay::new(plan, batch.len());
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
        let first = if gains { FIRST_DISPATCHES } else { 0 };
        let copy_before = (reported < optimizer.dispatches.len()).then_some(reported);
        [step.sent_early(early, first), Replay { copy_before, ..update }]
    }

    /// The micro-step's plan of that kind.
    fn micro_step_plan<'a>(&'a self, of: &'a MicroStep) -> &'a Plan {
        let (short, long) = match &of.steered {
            Some(steered) => (&steered.micro_step, &steered.long),
            None => (&self.plans.micro_step, &self.plans.long),
        };
        long.as_ref().filter(|_| of.long).unwrap_or(short)
    }

    /// Submits that so much of a full micro-step is cut into.
    fn submits(&self, share: f64) -> usize {
        let submits = (self.expected.get() * share / SUBMIT_MILLISECONDS).ceil();
        submits.clamp(1.0, MOST_SUBMITS as f64) as usize
    }

    /// Learns from a step of so much of a full one: as much as that, since what every step takes, however
    /// few its tokens, counts for more in a short one.
    fn learn(&self, milliseconds: f64, share: f64) {
        let expected = self.expected.get();
        self.expected.set(expected + 0.5 * (milliseconds - share * expected));
    }

    fn write_step(&self, step: &Step) -> Result<()> {
        self.model.gpu().write(self.buffer(Buffer::Step)?, 0, bytemuck::bytes_of(step))
    }

    fn step_uniform(
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
    fn nominal_tokens(&self) -> f64 {
        self.plans.micro_step.tokens as f64 / self.plans.gradient_unit
    }

    /// Gradient of a tensor in the last step, averaged over its counted targets, before clipping.
    ///
    /// # Errors
    /// `invalid-options` before the first step and after a profile; `freed`, `device-lost`.
    pub async fn read_gradient(&self, index: usize) -> Result<Vec<f32>> {
        self.buffer(Buffer::Step)?;
        let progress = self.in_flight.progress();
        if progress.counted == 0 {
            return Err(Error::options(
                "there are no gradients: call step first (a save does not keep them, and profile \
                 overwrites them)",
            ));
        }
        let tensor = tensor_at(self.layout(), index)?;
        let bytes = self.read_set(tensor, Buffer::Gradients, None).await?;
        let scale = (self.nominal_tokens() / progress.divisor()) as f32;
        Ok(bytemuck::pod_collect_to_vec::<u8, f32>(&bytes).into_iter().map(|g| g * scale).collect())
    }

    /// Some of a tensor's bytes in one of the trainer's sets; none given: all.
    pub(super) async fn read_set(
        &self,
        tensor: &crate::params::Tensor,
        set: fn(usize) -> Buffer,
        bytes: Option<Range<u64>>,
    ) -> Result<Vec<u8>> {
        let find = |name| self.buffer(name);
        let storage = TensorStorage { layout: self.layout(), tensor, set, find: &find };
        let all = tensor.shape.iter().product::<usize>() as u64 * 4;
        storage.read_bytes(self.model.gpu(), bytes.unwrap_or(0..all))?.await
    }

    /// The kernels a step replays, with why each was chosen: a step of a batch like that of the last step or evaluation, with
    /// a loss like that step's. Steps by a gradient function are listed as plain ones.
    pub fn plan(&self) -> Result<Vec<PlanRow>> {
        let kind = self.batch_kind.borrow().clone();
        let most = self.model.gpu().capabilities().limits.max_compute_workgroups_per_dimension;
        let mut rows = self.micro_step_plan(&kind).rows(most)?;
        self.listed.replace(kind);
        rows.extend(self.plans.optimizer.rows(most)?);
        Ok(rows)
    }

    /// The composed WGSL of a row of [`Trainer::plan`] as that was last called, as it is compiled.
    ///
    /// # Errors
    /// `invalid-options` where there is no such row.
    pub fn wgsl(&self, row: f64) -> Result<String> {
        let listed = self.listed.borrow();
        let plans = [self.micro_step_plan(&listed), &self.plans.optimizer];
        let mut all = plans.into_iter().flat_map(|plan| {
            plan.dispatches.iter().map(|dispatch| &plan.kernels[dispatch.kernel].wgsl)
        });
        let last = plans.iter().map(|plan| plan.dispatches.len()).sum::<usize>() - 1;
        let found = (row.fract() == 0.0 && row >= 0.0).then(|| all.nth(row as usize)).flatten();
        found
            .map(Wgsl::text)
            .ok_or_else(|| Error::options(format!("row is {row}; the plan has rows 0 to {last}")))
    }

    /// Bytes of the activation slots, and what they would be if no tensor shared one.
    pub fn activation_bytes(&self) -> (u64, u64) {
        (self.plans.slots.iter().sum(), self.plans.micro_step.unshared_bytes)
    }
}

/// Refuses a trainer for which there is no memory beside `others`, which are not allocated yet.
///
/// # Errors
/// `limit-exceeded`, `out-of-memory`.
pub(super) fn check_trainer_memory(
    gpu: &dyn Gpu,
    layout: &Params,
    choices: TrainChoices,
    others: MemoryBytes,
) -> Result<()> {
    let plans = train_plans(gpu.capabilities(), layout, choices)?;
    let asked = MemoryBytes::of_plans(layout, plans.all()).plus(others);
    memory::check_memory(gpu, Purpose::Trainer, &asked)
}

impl Drop for Trainer {
    fn drop(&mut self) {
        self.free();
    }
}

/// The error of a step that is done, whose result did not arrive.
fn unread(error: Error) -> Error {
    let internal = error.code == ErrorCode::Internal;
    Error { code: if internal { ErrorCode::Unread } else { error.code }, ..error }
}
