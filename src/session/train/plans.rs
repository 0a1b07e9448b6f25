//! The plans of a trainer: made, chosen by batch and loss, and listed.

use super::objective::SteeredPlans;
use super::tune::tune;
use super::{Trainer, TrainerOptions};
use crate::caps::Capabilities;
use crate::error::{Error, Result};
use crate::gpu::{Gpu, PlanId};
use crate::kernels::{Steering, TunedProduct, Wgsl};
use crate::lower::{TrainChoices, TrainPlans, train_plans};
use crate::params::Params;
use crate::plan::{Plan, PlanRow};
use crate::session::memory::{self, MemoryBytes, Purpose};
use crate::session::model::Model;
use std::rc::Rc;

/// The plans of [`TrainPlans`], installed.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrainerPlans {
    pub micro_step: PlanId,
    pub optimizer: PlanId,
    pub evaluate: PlanId,
    pub averages: Option<PlanId>,
    /// The micro-step of batches with long documents, if it has a plan of its own.
    pub long: Option<PlanId>,
}

impl TrainerPlans {
    /// One after the other, since a CPU compiles in `install` what another adapter has compiled before. It gets the steps
    /// of the progress that are done.
    pub async fn installed(
        plans: &TrainPlans,
        install: &mut impl AsyncFnMut(&Plan, usize) -> Result<PlanId>,
    ) -> Result<Self> {
        Ok(Self {
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
        })
    }

    pub fn micro_step_of(&self, long: bool) -> PlanId {
        self.long.filter(|_| long).unwrap_or(self.micro_step)
    }
}

/// Which of the plans a micro-step takes.
#[derive(Clone, Debug, Default)]
pub(super) struct PlanChoice {
    /// The plans of another loss than the trainer's own.
    pub steered: Option<Rc<SteeredPlans>>,
    /// Whether documents are long.
    pub long: bool,
}

impl Trainer {
    /// The plans, with the tiles that are fastest on this GPU.
    pub(super) async fn tuned(
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

    /// The micro-step's plan by that choice.
    pub(super) fn micro_step_plan<'a>(&'a self, of: &'a PlanChoice) -> &'a Plan {
        let (short, long) = match &of.steered {
            Some(steered) => (&steered.micro_step, &steered.long),
            None => (&self.plans.micro_step, &self.plans.long),
        };
        long.as_ref().filter(|_| of.long).unwrap_or(short)
    }

    /// The kernels a step replays, with why each was chosen: a step of a batch like that of the last step or evaluation, with
    /// a loss like that step's. Steps by a gradient function are listed as plain ones.
    pub fn plan(&self) -> Result<Vec<PlanRow>> {
        let choice = self.batch_plan.borrow().clone();
        let most = self.model.gpu().capabilities().limits.max_compute_workgroups_per_dimension;
        let mut rows = self.micro_step_plan(&choice).rows(most)?;
        self.listed.replace(choice);
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
pub(in crate::session) fn check_trainer_memory(
    gpu: &dyn Gpu,
    layout: &Params,
    choices: TrainChoices,
    others: MemoryBytes,
) -> Result<()> {
    let plans = train_plans(gpu.capabilities(), layout, choices)?;
    let asked = MemoryBytes::of_plans(layout, plans.all()).plus(others);
    memory::check_memory(gpu, Purpose::Trainer, &asked)
}
