//! Where a training run is.

use serde::{Deserialize, Serialize};

/// Everything that must survive a save besides tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::session) struct Progress {
    /// Optimizer steps done.
    pub step: u64,
    /// Micro-steps of the current accumulation done.
    pub micro_step: u64,
    /// Targets counted in the gradients: in the current accumulation or, after a step, in the last
    /// one. 0: there are no gradients.
    pub counted: u64,
    /// Batches drawn from the dataset.
    pub cursor: u64,
}

impl Progress {
    /// What a save keeps: the gradients of a finished step are not saved, so it counts none.
    pub fn kept(self) -> Self {
        Self { counted: if self.micro_step == 0 { 0 } else { self.counted }, ..self }
    }
}
