//! Steps whose end is not known yet, and what the progress is if one of them fails.

use super::{Progress, Trainer};
use crate::error::{Error, ErrorCode};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Steps on their way.
#[derive(Debug, Default)]
pub(super) struct Flight {
    steps: Cell<usize>,
    failed: Cell<bool>,
    /// The progress that the steps which have arrived leave.
    arrived: RefCell<Progress>,
}

/// One step on its way. Dropped before it has arrived, it counts as done: nobody asks.
#[derive(Debug)]
pub(super) struct Step {
    trainer: Rc<Trainer>,
    after: Progress,
    /// Whether it ends an accumulation.
    last: bool,
    submits: usize,
    failed: bool,
}

impl Trainer {
    /// Notes that a step has been queued, after which the progress is `after`.
    pub(super) fn sent(self: &Rc<Self>, after: Progress, last: bool, submits: usize) -> Step {
        let flight = &self.flight;
        if flight.steps.replace(flight.steps.get() + 1) == 0 {
            flight.failed.set(false);
            flight.arrived.replace(self.progress.get());
        }
        self.progress.set(after);
        Step { trainer: Rc::clone(self), after, last, submits, failed: false }
    }
}

impl Step {
    /// Takes the step back, which the device has refused. What one of several submits has done stays
    /// done.
    pub fn failed(&mut self, error: Error) -> Error {
        self.failed = true;
        if self.submits == 1 || error.code == ErrorCode::DeviceLost {
            return error;
        }
        let Error { code, message } = error;
        let more = format!(
            "{message}. The step was cut into {} submits, and others of them may have run: the weights may \
             have changed; go on from a save",
            self.submits
        );
        Error::new(code, more)
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        let flight = &self.trainer.flight;
        let mut arrived = flight.arrived.borrow_mut();
        if self.failed {
            flight.failed.set(true);
            if self.submits > 1 {
                arrived.counted = 0; // some of the gradients may be the failed step's
            }
        } else {
            let step = arrived.step + u64::from(self.last);
            *arrived = Progress { step, ..self.after };
        }
        flight.steps.set(flight.steps.get() - 1);
        if flight.steps.get() == 0 && flight.failed.get() {
            self.trainer.progress.set(*arrived);
        }
    }
}
