//! What kernels left on an adapter, so that another device of it need not compile and run them again.
//!
//! Two devices of one adapter differ in limits and features, and selection answers both with many
//! equal texts. The compiler and the processor behind both are the same: an equal text on equal
//! operands would leave equal bytes.

use super::harness::{Job, Outputs};
use super::ledger::key;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// The results of one case, with random data from one seed, on the devices of one adapter.
#[derive(Clone, Debug, Default)]
pub struct Results(Rc<RefCell<Recorded>>);

#[derive(Debug, Default)]
struct Recorded {
    /// What each job left, and the device that ran it.
    outputs: HashMap<u64, (usize, Outputs)>,
    device: usize,
}

impl Results {
    /// What runs from now on runs on another device.
    pub fn next_device(&self) {
        self.0.borrow_mut().device += 1;
    }

    /// What an earlier device computed of an equal job. A device repeats its own work: a case may run
    /// a job twice to compare.
    pub(crate) fn of(&self, job: &Job) -> Option<Outputs> {
        let recorded = self.0.borrow();
        let (device, outputs) = recorded.outputs.get(&key(job))?;
        (*device < recorded.device).then(|| outputs.clone())
    }

    pub(crate) fn record(&self, job: &Job, outputs: &Outputs) {
        let mut recorded = self.0.borrow_mut();
        let device = recorded.device;
        recorded.outputs.entry(key(job)).or_insert_with(|| (device, outputs.clone()));
    }
}
