//! Global gradient norm, the decision to update, and the update of each optimizer.

use super::compose::{Binding, Composer, Grid, Kernel, Module, read, read_write, shader, uniform};
use super::limits::{check_storage, reduction, row_workgroup, variant, workgroup_size};
use super::spec::KernelSpec;
use crate::caps::Capabilities;
use crate::error::Result;

/// Workgroups, and so partial sums, that `grad_norm_forward` uses for each shard.
pub const GRAD_NORM_GROUPS: usize = 512;

/// `grad_norm_forward` of one shard. Grid: [`GRAD_NORM_GROUPS`] workgroups.
pub fn grad_norm(caps: &Capabilities) -> Result<Kernel> {
    let grid = Grid::Fixed { x: GRAD_NORM_GROUPS as u32, y: 1 };
    let spec = KernelSpec::GradNorm;
    let (subgroups, why) = reduction(caps);
    Composer::new(spec, row_workgroup(caps, 1024, spec.name())?)
        .module(shader!("lib/step"))
        .reduction(subgroups)
        .module(shader!("12_grad_norm"))
        .finish(
            caps,
            &[read("gradients"), read_write("squares"), uniform("step")],
            grid,
            variant(subgroups),
            why,
        )
}

/// `step_decision_forward` over `partials` partial sums. Grid: one workgroup.
pub fn step_decision(caps: &Capabilities, partials: usize) -> Result<Kernel> {
    let spec = KernelSpec::StepDecision { partials };
    let (subgroups, why) = reduction(caps);
    Composer::new(spec, row_workgroup(caps, 1024, spec.name())?)
        .size("COUNT", partials)
        .module(shader!("lib/step"))
        .module(shader!("lib/finite"))
        .reduction(subgroups)
        .module(shader!("12_step_decision"))
        .finish(
            caps,
            &[read("squares"), read_write("metrics"), read_write("optimizer"), uniform("step")],
            Grid::Fixed { x: 1, y: 1 },
            variant(subgroups),
            why,
        )
}

/// `adamw_forward` of a run of `count` elements. Grid: one invocation per element.
pub fn adamw(caps: &Capabilities, count: usize) -> Result<Kernel> {
    let bindings = [
        read_write("weights"),
        read("gradients"),
        read_write("moment1"),
        read_write("moment2"),
        read("optimizer"),
        uniform("step"),
        uniform("range"),
    ];
    update(caps, KernelSpec::AdamW { count }, count, &[shader!("12_adamw")], &bindings)
}

/// `sgd_forward` of a run of `count` elements; without `momentum` it has no state. Grid: one invocation
/// per element.
pub fn sgd(caps: &Capabilities, count: usize, momentum: bool) -> Result<Kernel> {
    let velocity = if momentum {
        shader!("lib/optimizer/velocity_kept")
    } else {
        shader!("lib/optimizer/velocity_none")
    };
    let bindings = &ONE_MOMENT[..ONE_MOMENT.len() - usize::from(!momentum)];
    let spec = KernelSpec::Sgd { count, momentum };
    update(caps, spec, count, &[velocity, shader!("12_sgd")], bindings)
}

/// `lion_forward` of a run of `count` elements. Grid: one invocation per element.
pub fn lion(caps: &Capabilities, count: usize) -> Result<Kernel> {
    update(caps, KernelSpec::Lion { count }, count, &[shader!("12_lion")], &ONE_MOMENT)
}

/// Elements of which both moments share a scale each.
pub const CODED_BLOCK: usize = 256;

/// `adamw8bit_forward` of `count` elements, whole blocks. Grid: one workgroup per block.
pub fn adamw8bit(caps: &Capabilities, count: usize) -> Result<Kernel> {
    let spec = KernelSpec::AdamW8Bit { count };
    let (subgroups, why) = reduction(caps);
    let blocks = count / CODED_BLOCK;
    // A word of codes per invocation; on a CPU as rows are reduced.
    let size = row_workgroup(caps, CODED_BLOCK, spec.name())?;
    check_storage(caps, 4 * (size + 512), spec.name())?;
    Composer::new(spec, size)
        .size("BLOCKS", blocks)
        .module(shader!("lib/step"))
        .module(shader!("lib/range"))
        .module(shader!("lib/flat"))
        .reduction(subgroups)
        .module(shader!("lib/optimizer/dynamic"))
        .module(shader!("12_adamw8bit"))
        .finish(
            caps,
            &[
                read_write("weights"),
                read("gradients"),
                read_write("moment1"),
                read_write("moment2"),
                read_write("scales"),
                read("optimizer"),
                uniform("step"),
                uniform("range"),
                uniform("place"),
            ],
            Grid::Flat { rows: 1, per_block: blocks, per_group: 1 }.fixed(caps, 1)?,
            variant(subgroups),
            why,
        )
}

/// `adamw_placed_forward` of `count` elements. Grid: one invocation per element.
pub fn adamw_placed(caps: &Capabilities, count: usize) -> Result<Kernel> {
    let spec = KernelSpec::AdamWPlaced { count };
    let size = workgroup_size(caps, 256, 1, spec.name())?;
    let flat = Grid::Flat { rows: 1, per_block: count, per_group: size as usize };
    Composer::new(spec, size)
        .size("COUNT", count)
        .module(shader!("lib/step"))
        .module(shader!("lib/range"))
        .module(shader!("lib/flat"))
        .module(shader!("12_adamw_placed"))
        .finish(
            caps,
            &[
                read_write("weights"),
                read("gradients"),
                read_write("moment1"),
                read_write("moment2"),
                read("optimizer"),
                uniform("step"),
                uniform("range"),
                uniform("place"),
            ],
            flat.fixed(caps, 1)?,
            "flat",
            "one invocation per element, workgroup as large as the device allows up to 256",
        )
}

/// What updates with at most one moment bind.
const ONE_MOMENT: [Binding; 6] = [
    read_write("weights"),
    read("gradients"),
    read("optimizer"),
    uniform("step"),
    uniform("range"),
    read_write("moment1"),
];

/// A kernel that updates `count` elements, each by one invocation.
fn update(
    caps: &Capabilities,
    spec: KernelSpec,
    count: usize,
    modules: &[&'static Module],
    bindings: &[Binding],
) -> Result<Kernel> {
    let size = workgroup_size(caps, 256, 1, spec.name())?;
    let flat = Grid::Flat { rows: 1, per_block: count, per_group: size as usize };
    let composer = Composer::new(spec, size)
        .module(shader!("lib/step"))
        .module(shader!("lib/range"))
        .module(shader!("lib/flat"));
    modules.iter().fold(composer, |composer, module| composer.module(module)).finish(
        caps,
        bindings,
        flat.fixed(caps, 1)?,
        "flat",
        "one invocation per element, workgroup as large as the device allows up to 256",
    )
}
