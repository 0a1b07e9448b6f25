//! Where a trainer is, with steps whose end is not known yet: what the progress is if one of them fails.

use super::run_progress::RunProgress;
use crate::error::{Error, ErrorCode};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A trainer's progress, and how many of its steps are in flight.
#[derive(Debug, Default)]
pub(super) struct StepsInFlight {
    /// The progress as if the steps in flight had arrived.
    progress: Cell<RunProgress>,
    steps: Cell<usize>,
    failed: Cell<bool>,
    /// The progress that the steps which have arrived leave.
    arrived: RefCell<RunProgress>,
    /// Batches that had been drawn when the accumulation began that is queued now.
    drawn: Cell<u64>,
}

/// One step in flight. If this is dropped without [`failed`](Self::failed), the step counts as done: its caller has stopped waiting.
#[derive(Debug)]
pub(super) struct StepInFlight {
    in_flight: Rc<StepsInFlight>,
    after: RunProgress,
    /// Whether it ends an accumulation.
    last: bool,
    /// Batches that had been drawn when its accumulation began.
    drawn: u64,
    submits: usize,
    failed: bool,
}

impl StepsInFlight {
    pub fn progress(&self) -> RunProgress {
        self.progress.get()
    }

    /// Puts the trainer there, with no step in flight.
    pub fn set(&self, progress: RunProgress) {
        self.progress.set(progress);
    }

    /// Whether a step is in flight, so that the GPU has work.
    pub fn busy(&self) -> bool {
        self.steps.get() > 0
    }

    /// Notes that a step has been queued, after which the progress is `after`.
    pub fn sent(self: &Rc<Self>, after: RunProgress, last: bool, submits: usize) -> StepInFlight {
        if self.steps.replace(self.steps.get() + 1) == 0 {
            self.failed.set(false);
            self.arrived.replace(self.progress.get());
        }
        let before = self.progress.replace(after);
        if before.micro_step == 0 {
            self.drawn.set(before.cursor);
        }
        let drawn = self.drawn.get();
        StepInFlight { in_flight: Rc::clone(self), after, last, drawn, submits, failed: false }
    }
}

impl StepInFlight {
    /// Takes the step back, which the device has refused. What one of several submits has done stays done.
    pub fn failed(&mut self, error: Error) -> Error {
        self.failed = true;
        if self.submits == 1 || error.code == ErrorCode::DeviceLost {
            return error;
        }
        let Error { code, message } = error;
        let changed = if self.last {
            "the weights may have changed; go on from a save"
        } else {
            "the accumulation of gradients begins again"
        };
        let more = format!(
            "{message}. The step was cut into {} submits, and others of them may have run: {changed}",
            self.submits
        );
        Error::new(code, more)
    }
}

impl Drop for StepInFlight {
    fn drop(&mut self) {
        let all = &self.in_flight;
        let mut arrived = all.arrived.borrow_mut();
        if self.failed {
            all.failed.set(true);
            if self.submits > 1 {
                // Some of the gradients may be the failed step's: the accumulation begins again, with the
                // batches that it had drawn.
                if arrived.micro_step > 0 {
                    (arrived.micro_step, arrived.cursor) = (0, self.drawn);
                }
                arrived.counted = 0;
            }
        } else {
            let step = arrived.step + u64::from(self.last);
            *arrived = RunProgress { step, ..self.after };
        }
        all.steps.set(all.steps.get() - 1);
        if all.steps.get() == 0 && all.failed.get() {
            all.progress.set(*arrived);
        }
    }
}
