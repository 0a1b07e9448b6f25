//! Global gradient norm, the decision to update, and the average of weights: what stands around the rules' kernels.

use super::compose::{Grid, Kernel, read, read_write, uniform};
use super::shape::Constant;
use super::spec::KernelSpec;
use super::update::UpdateText;
use crate::caps::Capabilities;
use crate::error::Result;

/// Workgroups, and so partial sums, that `grad_norm_forward` uses for each shard.
pub const GRAD_NORM_GROUPS: usize = 512;

/// `grad_norm_forward` of one shard. Grid: [`GRAD_NORM_GROUPS`] workgroups.
pub fn grad_norm(caps: &Capabilities) -> Result<Kernel> {
    UpdateText {
        kernel: "12_grad_norm",
        bindings: &[read("gradients"), read_write("squares"), uniform("step")],
        ..UpdateText::default()
    }
    .reduced(
        caps,
        KernelSpec::GradNorm,
        1024,
        Grid::Fixed { x: GRAD_NORM_GROUPS as u32, y: 1 },
    )
}

/// `step_decision_forward` over `partials` partial sums. Grid: one workgroup.
pub fn step_decision(caps: &Capabilities, partials: usize) -> Result<Kernel> {
    UpdateText {
        sizes: &[("COUNT", partials)],
        kernel: "12_step_decision",
        bindings: &[
            read("squares"),
            read_write("metrics"),
            read_write("optimizer"),
            uniform("step"),
        ],
        ..UpdateText::default()
    }
    .reduced(caps, KernelSpec::StepDecision { partials }, 1024, Grid::Fixed { x: 1, y: 1 })
}

/// `average_forward` of a run of `count` elements, the share of a step's weights `share`. Grid: one invocation per
/// element.
pub fn average(caps: &Capabilities, count: usize, share: Constant) -> Result<Kernel> {
    UpdateText {
        float: Some(("SHARE", share)),
        kernel: "12_average",
        bindings: &[
            read_write("weights"),
            read_write("averages"),
            read("optimizer"),
            uniform("step"),
        ],
        ..UpdateText::default()
    }
    .flat(caps, KernelSpec::Average { count, share }, count)
}
