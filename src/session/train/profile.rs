//! Times of a step's dispatches.

use super::{PlanChoice, Trainer};
use crate::error::{Error, Result};
use crate::gpu::{Region, Replay, submit_checked};
use crate::plan::{Buffer, OPTIMIZER_BYTES, PlanRow};
use crate::session::progress::Progress;
use crate::session::step::{OptimizerState, Step};

impl Trainer {
    /// [`Trainer::plan`] with GPU times where the device has timestamps. Replays the batch of the
    /// last step or evaluation, and an optimizer step that changes neither weights nor moments;
    /// without a made update, the latter is left untimed. The gradients are gone afterwards.
    ///
    /// # Errors
    /// `freed`, `device-lost`, `aborted`; `invalid-options` before the first step and in the middle of
    /// an accumulation.
    pub async fn profile(&self, progress: Progress<'_>) -> Result<Vec<PlanRow>> {
        self.buffer(Buffer::Step)?;
        let mut run = self.progress();
        let tokens = self.batch_tokens.get();
        if run.micro_step != 0 {
            return Err(Error::options(
                "profile in the middle of an accumulation would overwrite its gradients",
            ));
        }
        if tokens == 0 {
            return Err(Error::options("there is no batch to profile with: call step first"));
        }
        let state = self.optimizer_state().await?;
        progress.report(0, 2, "time the micro-step")?;
        run.counted = 0; // the replay overwrites the gradients
        self.in_flight.set(run);
        let step = Step {
            // With these state and weights stay what they are, though all is read and written.
            gradient_scale: 0.0,
            weight_decay: 0.0,
            still: 1,
            ..self.step_uniform(tokens, false, 0.0, 1.0)
        };
        let gpu = self.model.gpu();
        let timed = submit_checked(&**gpu, || {
            self.write_step(&step)?;
            let PlanChoice { steered, long } = &*self.batch_plan.borrow();
            let plans = steered.as_ref().map_or(self.installed, |steered| steered.installed);
            gpu.profile(Replay::new(plans.micro_step_of(*long), tokens))
        })?;
        let mut times = timed.await?;
        // Before the first update the moments' bias corrections are 0, and the update would be 0 / 0.
        if let Some(times) = &mut times
            && state.carried1 > 0.0
        {
            progress.report(1, 2, "time the optimizer")?;
            let optimizer = gpu
                .profile(Replay::new(self.installed.optimizer, self.plans.optimizer.tokens))?
                .await?;
            times.extend(optimizer.into_iter().flatten());
        }
        let mut rows = self.plan()?;
        for (row, time) in rows.iter_mut().zip(times.into_iter().flatten()) {
            row.gpu_microseconds = Some(time);
        }
        progress.report(2, 2, "time the optimizer")?;
        Ok(rows)
    }

    async fn optimizer_state(&self) -> Result<OptimizerState> {
        let buffer = self.buffer(Buffer::Optimizer)?;
        let region = Region { buffer, offset: 0, bytes: OPTIMIZER_BYTES };
        Ok(bytemuck::pod_read_unaligned(&self.model.gpu().read(region)?.await?))
    }
}
