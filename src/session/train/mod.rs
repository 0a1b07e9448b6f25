//! Training: a trainer, its buffers and options.

mod average;
pub(super) mod batch;
mod dataset;
pub(super) mod given;
mod in_flight;
mod loss;
mod micro_step;
pub(super) mod objective;
mod options;
mod plans;
mod prepare;
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
pub use micro_step::Metrics;
use objective::SteeredPlans;
pub use objective::{Normalize, SoftTargets, StepObjective};
pub use options::{DropoutOptions, Precision, TrainerOptions};
pub(super) use plans::check_trainer_memory;
use plans::{PlanChoice, TrainerPlans};
use run_progress::RunProgress;
pub(super) use state::{TrainerState, saved_sets};

use super::memory::{self, MemoryBytes, Purpose};
use super::model::Model;
use super::progress::Progress;
use super::resources::Resources;
use super::step::{rope_tables, write_rope_tables};
use super::throughput::first_guess;
use super::weights::tensor_at;
use super::weights::tensor_storage::TensorStorage;
use crate::data::Batch;
use crate::error::{Error, ErrorCode, Result};
use crate::gpu::{Region, create_checked};
use crate::kernels::Steering;
use crate::lower::TrainPlans;
use crate::params::Params;
use crate::plan::{Buffer, METRICS_BYTES, Plan, buffers};
use crate::schedule::Schedule;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

/// Trains a model. Holds gradients, moments and activations on the GPU.
#[derive(Debug)]
pub struct Trainer {
    pub(super) model: Rc<Model>,
    pub(super) resources: RefCell<Option<Resources>>,
    plans: TrainPlans,
    installed: TrainerPlans,
    /// The plans of other losses, once a step has asked for them.
    steered_plans: RefCell<Vec<Rc<SteeredPlans>>>,
    /// The micro-steps cut for gradient functions, of short documents or of long ones, once a step has asked for them.
    given_pieces: RefCell<Vec<GivenPieces>>,
    /// Whether averages and weights have changed places.
    exchanged: Cell<bool>,
    options: RefCell<TrainerOptions>,
    schedule: Cell<Schedule>,
    in_flight: Rc<StepsInFlight>,
    /// The losses of the accumulation that was queued last. Micro-steps in flight keep their own.
    losses: RefCell<Rc<Cell<LossSum>>>,
    /// The version of the adapter's base that [`Buffer::Mirror`] has the weights of.
    rounded: Cell<Option<u64>>,
    /// Tokens of the batch in the buffer; none before the first.
    batch_tokens: Cell<usize>,
    /// Which plan that batch is for.
    batch_plan: RefCell<PlanChoice>,
    /// What [`Trainer::plan`] last listed. [`Trainer::wgsl`] counts rows in that list.
    listed: RefCell<PlanChoice>,
    /// The last batch as it was written, and as it was drawn from a dataset: their memory serves the next ones.
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
        let mut install = async |plan: &Plan, done| {
            progress.report(done, 5, "compile kernels")?;
            create_checked(&*gpu, || resources.install(plan, &[&weights])).await
        };
        let installed = TrainerPlans::installed(&plans, &mut install).await?;
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
            rounded: Cell::new(None),
            batch_tokens: Cell::new(0),
            batch_plan: RefCell::default(),
            listed: RefCell::default(),
            batch_words: RefCell::default(),
            drawn: RefCell::default(),
            expected: Cell::new(expected),
            ended: Cell::new(f64::NEG_INFINITY),
        });
        trainer.begin_averages().await?;
        Ok(trainer)
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
}

impl Drop for Trainer {
    fn drop(&mut self) {
        self.free();
    }
}
