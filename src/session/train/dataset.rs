//! Steps and evaluations over the batches of a dataset.

use super::run_progress::RunProgress;
use super::{Metrics, StepObjective, Trainer};
use crate::data::Dataset;
use crate::error::{Error, ErrorCode, Result};
use crate::gpu::{LocalFuture, Replay, create_checked, submit_checked};
use crate::plan::Buffer;
use crate::session::step::StepResult;
use std::rc::Rc;

impl Trainer {
    /// Queues an optimizer step over the dataset's next batch, for the loss to be read while others
    /// are under way.
    ///
    /// # Errors
    /// As [`Trainer::step`]; `invalid-options` with accumulation, whose micro-steps are not queued.
    pub fn queue_dataset(
        self: &Rc<Self>,
        dataset: &Dataset,
    ) -> Result<LocalFuture<Result<Metrics>>> {
        self.expect_whole_steps()?;
        self.queue_drawn(dataset)
    }

    /// Queues a micro-step over the dataset's next batch, which moves the cursor.
    fn queue_drawn(self: &Rc<Self>, dataset: &Dataset) -> Result<LocalFuture<Result<Metrics>>> {
        let seed = self.options.borrow().seed;
        let cursor = self.progress().cursor;
        let mut batch = self.drawn.borrow_mut();
        dataset.draw(seed, cursor, self.plans.micro_step.tokens, &mut batch)?;
        self.queue_step((&batch, &StepObjective::default()), None, 1)
    }

    /// Refuses to queue steps that have several parts.
    ///
    /// # Errors
    /// `invalid-options`.
    pub fn expect_whole_steps(&self) -> Result<()> {
        if self.options.borrow().gradient_accumulation > 1 {
            return Err(Error::options(
                "stepsAhead queues whole steps, and a step of an accumulation has several parts: leave one of them out",
            ));
        }
        Ok(())
    }

    /// One optimizer step over the dataset's next batches; tokens and time are those of all its
    /// micro-steps. A failure takes the accumulation back to where the call found it, unless that
    /// was in its middle; there it keeps the micro-steps that are done. Where only the result of the
    /// last micro-step is lost, the weights have changed, and the step counts.
    ///
    /// # Errors
    /// As [`Trainer::step`]; `aborted` when `stop`, asked between micro-steps, says so.
    pub async fn step_dataset(
        self: &Rc<Self>,
        dataset: &Dataset,
        stop: &dyn Fn() -> bool,
    ) -> Result<Metrics> {
        let before = self.progress();
        let mut done = self.accumulate(dataset, stop).await;
        let updated = self.progress().step != before.step;
        if done.is_err() && before.micro_step == 0 && !updated {
            // The first micro-step overwrote the gradients of the step before.
            let counted = if self.progress() == before { before.counted } else { 0 };
            self.in_flight.set(RunProgress { counted, ..before });
            if let Err(error) = &mut done
                && error.code == ErrorCode::Unread
            {
                error.code = ErrorCode::Internal; // what was done is taken back
            }
        }
        done
    }

    async fn accumulate(
        self: &Rc<Self>,
        dataset: &Dataset,
        stop: &dyn Fn() -> bool,
    ) -> Result<Metrics> {
        let (mut tokens, mut milliseconds, mut places) = (0, 0.0, 0);
        loop {
            if tokens > 0 && stop() {
                return Err(Error::new(ErrorCode::Aborted, "stopped between two micro-steps"));
            }
            let metrics = self.queue_drawn(dataset)?.await?;
            tokens += metrics.tokens;
            milliseconds += metrics.milliseconds;
            places += self.plans.micro_step.tokens;
            if self.progress().micro_step == 0 {
                let unfilled = 1.0 - tokens as f64 / places as f64;
                return Ok(Metrics { tokens, unfilled, milliseconds, ..metrics });
            }
        }
    }

    /// Batches of an evaluation on a dataset's validation split.
    ///
    /// # Errors
    /// `invalid-options` when there is no such split.
    pub fn evaluation_batches(&self, dataset: &Dataset) -> Result<usize> {
        match dataset.validation_batches(self.plans.micro_step.tokens)? {
            0 => Err(Error::options(
                "the dataset has no validation split: validationFraction is 0 or the text too short",
            )),
            batches => Ok(batches),
        }
    }

    /// Sum of the losses in nats, and the targets counted, of one evaluation batch.
    ///
    /// # Errors
    /// As [`Trainer::step`].
    pub async fn evaluate_batch(&self, dataset: &Dataset, index: usize) -> Result<[f64; 2]> {
        let count = self.evaluation_batches(dataset)?;
        if index >= count {
            return Err(Error::options(format!(
                "evaluation batch {index} of {count} does not exist"
            )));
        }
        let batch = dataset.validation_batch(index, self.plans.micro_step.tokens)?;
        self.check(&batch)?;
        let kept = self.read_accumulated().await?;
        let replays = [Replay::new(self.installed.evaluate, batch.len())];
        let submits = self.submits(1.0 / 3.0);
        let gpu = self.model.gpu();
        let read = submit_checked(&**gpu, || {
            self.write_batch(&batch)?;
            self.write_step(&self.step_uniform(batch.len(), false, 0.0, 1.0))?;
            gpu.submit(&replays, submits, Some(self.metrics()?))
        })?;
        let read = read.await;
        if let Some(kept) = kept {
            let metrics = self.buffer(Buffer::Metrics)?;
            create_checked(&**gpu, || gpu.write(metrics, 0, &kept)).await?;
        }
        let result: StepResult = bytemuck::pod_read_unaligned(&read?);
        Ok([f64::from(result.loss), batch.counted() as f64])
    }

    /// The metrics of an accumulation in progress, which an evaluation would overwrite.
    async fn read_accumulated(&self) -> Result<Option<Vec<u8>>> {
        if self.progress().micro_step == 0 {
            return Ok(None);
        }
        Ok(Some(self.model.gpu().read(self.metrics()?)?.await?))
    }
}
