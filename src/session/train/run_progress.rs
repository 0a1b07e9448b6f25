//! Where a training run is.

use super::objective::Normalized;
use serde::{Deserialize, Serialize};

/// Everything that must survive a save besides tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::session) struct RunProgress {
    /// Optimizer steps done.
    pub step: u64,
    /// Micro-steps of the current accumulation done.
    pub micro_step: u64,
    /// Targets counted in the gradients: in the current accumulation or, after a step, in the last
    /// one. 0: there are no gradients.
    pub counted: u64,
    /// Batches drawn from the dataset.
    pub cursor: u64,
    /// What the losses of these targets are divided by, where that is not their count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub normalized: Option<Normalized>,
}

impl RunProgress {
    /// What a save keeps: the gradients of a finished step are not saved, so it counts none.
    pub fn kept(self) -> Self {
        match self.micro_step {
            0 => Self { counted: 0, normalized: None, ..self },
            _ => self,
        }
    }

    /// This progress with the targets of the next micro-step.
    pub fn with_targets(self, targets: u64) -> Self {
        let before = if self.micro_step == 0 { 0 } else { self.counted };
        Self { counted: before + targets, ..self }
    }

    /// The progress after a micro-step, which took `drawn` batches from the dataset and may have been the last of its
    /// step.
    pub fn after_micro_step(self, last: bool, drawn: u64) -> Self {
        Self {
            step: self.step + u64::from(last),
            micro_step: if last { 0 } else { self.micro_step + 1 },
            cursor: self.cursor + drawn,
            ..self
        }
    }

    /// N: what the losses of the step until now are divided by.
    pub fn divisor(self) -> f64 {
        self.normalized.map_or(self.counted as f64, Normalized::number)
    }

    /// Number of the micro-step, which with the seed decides the masks of dropout. A state may name a step
    /// so late that the number starts again at 0.
    pub fn draws(self, gradient_accumulation: u64) -> u32 {
        self.step.wrapping_mul(gradient_accumulation).wrapping_add(self.micro_step) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::RunProgress;

    #[test]
    fn draws_of_any_step_have_a_number() {
        let progress =
            |step, micro_step| RunProgress { step, micro_step, ..RunProgress::default() };
        assert_eq!(progress(3, 1).draws(4), 13);
        assert_eq!(progress((1 << 53) - 1, 2).draws(1 << 16), 0xffff_0002);
    }
}
