//! Global gradient norm, the decision to update, the average of weights, and the kernels of the optimizers' rules. These
//! are written down in their rules' files.

#[cfg(feature = "testing")]
pub(crate) mod cases;
#[cfg(feature = "testing")]
pub(crate) mod twin;

mod update;

pub(crate) use update::UpdateText;
pub use update::{UpdateKernel, UpdateSpec};

use super::compose::{Grid, Kernel, Spec, read, read_write, uniform};
use super::shape::Constant;
use crate::caps::Capabilities;
use crate::error::Result;

/// Workgroups, and so partial sums, that `grad_norm_forward` uses for each shard.
pub const GRAD_NORM_GROUPS: usize = 512;

/// Partial sums of the squares of one shard's gradients. Grid: [`GRAD_NORM_GROUPS`] workgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GradNorm;

impl Spec for GradNorm {
    fn name(&self) -> &'static str {
        "grad_norm_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let text = UpdateText {
            kernel: "12_grad_norm",
            bindings: &[read("gradients"), read_write("squares"), uniform("step")],
            ..UpdateText::default()
        };
        text.reduced(caps, *self, 1024, Grid::Fixed { x: GRAD_NORM_GROUPS as u32, y: 1 })
    }
}

/// Whether to update, and how much the gradients are scaled, from `partials` partial sums. Grid: one workgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StepDecision {
    pub partials: usize,
}

impl Spec for StepDecision {
    fn name(&self) -> &'static str {
        "step_decision_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let text = UpdateText {
            sizes: &[("COUNT", self.partials)],
            kernel: "12_step_decision",
            bindings: &[
                read("squares"),
                read_write("metrics"),
                read_write("optimizer"),
                uniform("step"),
            ],
            ..UpdateText::default()
        };
        text.reduced(caps, *self, 1024, Grid::Fixed { x: 1, y: 1 })
    }
}

/// The moving average of a run of weights: the share of a step's weights is `share`. Grid: one invocation per element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Average {
    pub count: usize,
    pub share: Constant,
}

impl Spec for Average {
    fn name(&self) -> &'static str {
        "average_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let text = UpdateText {
            float: Some(("SHARE", self.share)),
            kernel: "12_average",
            bindings: &[
                read_write("weights"),
                read_write("averages"),
                read("optimizer"),
                uniform("step"),
            ],
            ..UpdateText::default()
        };
        text.flat(caps, *self, self.count)
    }
}
