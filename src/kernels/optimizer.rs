//! Global gradient norm, the decision to update, and the update of each optimizer.

use super::compose::{Binding, Composer, Grid, Kernel, read, read_write, uniform};
use super::limits::{check_storage, elements, reduction, row_workgroup, variant, workgroup_size};
use super::shape::Constant;
use super::spec::KernelSpec;
use crate::caps::Capabilities;
use crate::error::Result;

/// Workgroups, and so partial sums, that `grad_norm_forward` uses for each shard.
pub const GRAD_NORM_GROUPS: usize = 512;

/// `grad_norm_forward` of one shard. Grid: [`GRAD_NORM_GROUPS`] workgroups.
pub fn grad_norm(caps: &Capabilities) -> Result<Kernel> {
    Text {
        sizes: &[],
        float: None,
        lanes: 1,
        kernel: "12_grad_norm",
        bindings: &[read("gradients"), read_write("squares"), uniform("step")],
    }
    .reduced(caps, KernelSpec::GradNorm, 1024, GRAD_NORM_GROUPS)
}

/// `step_decision_forward` over `partials` partial sums. Grid: one workgroup.
pub fn step_decision(caps: &Capabilities, partials: usize) -> Result<Kernel> {
    Text {
        sizes: &[("COUNT", partials)],
        float: None,
        lanes: 1,
        kernel: "12_step_decision",
        bindings: &[
            read("squares"),
            read_write("metrics"),
            read_write("optimizer"),
            uniform("step"),
        ],
    }
    .reduced(caps, KernelSpec::StepDecision { partials }, 1024, 1)
}

/// `adamw_forward` of a run of `count` elements. Grid: one invocation per vector.
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
    update(caps, KernelSpec::AdamW { count }, count, "12_adamw", &bindings)
}

/// `sgd_forward` of a run of `count` elements; without `momentum` it has no state. Grid: one invocation
/// per vector.
pub fn sgd(caps: &Capabilities, count: usize, momentum: bool) -> Result<Kernel> {
    let bindings = &ONE_MOMENT[..ONE_MOMENT.len() - usize::from(!momentum)];
    let spec = KernelSpec::Sgd { count, momentum };
    update(caps, spec, count, "12_sgd", bindings)
}

/// `lion_forward` of a run of `count` elements. Grid: one invocation per vector.
pub fn lion(caps: &Capabilities, count: usize) -> Result<Kernel> {
    update(caps, KernelSpec::Lion { count }, count, "12_lion", &ONE_MOMENT)
}

/// Elements of which both moments share a scale each.
pub const CODED_BLOCK: usize = 256;

/// `adamw8bit_forward` of `count` elements, whole blocks. Grid: one workgroup per block.
pub fn adamw8bit(caps: &Capabilities, count: usize) -> Result<Kernel> {
    let (spec, blocks) = (KernelSpec::AdamW8Bit { count }, count / CODED_BLOCK);
    // A word of codes per invocation; on a CPU as rows are reduced.
    let size = row_workgroup(caps, CODED_BLOCK, spec.name())?;
    check_storage(caps, [4 * size, 1024, 1024], spec.name())?;
    let text = Text {
        sizes: &[("CODED_BLOCKS", blocks)],
        float: None,
        lanes: 1,
        kernel: "12_adamw8bit",
        bindings: &[
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
    };
    let mut kernel = text.reduced(caps, spec, CODED_BLOCK, 1)?;
    kernel.grid = Grid::Flat { rows: 1, per_block: blocks, per_group: 1 }.fixed(caps, 1)?;
    Ok(kernel)
}

/// `adamw_placed_forward` of `count` elements. Grid: one invocation per element.
pub fn adamw_placed(caps: &Capabilities, count: usize) -> Result<Kernel> {
    Text {
        sizes: &[("COUNT", count)],
        float: None,
        lanes: 1,
        kernel: "12_adamw_placed",
        bindings: &[
            read_write("weights"),
            read("gradients"),
            read_write("moment1"),
            read_write("moment2"),
            read("optimizer"),
            uniform("step"),
            uniform("range"),
            uniform("place"),
        ],
    }
    .flat(caps, KernelSpec::AdamWPlaced { count }, count)
}

/// Workgroups, and so partial sums, of `muon_forward` over a run of so many elements.
pub fn muon_parts(count: usize) -> usize {
    count.div_ceil(2048).min(GRAD_NORM_GROUPS)
}

/// `muon_forward` of a run of `count` elements. Grid: [`muon_parts`] workgroups.
pub fn muon(caps: &Capabilities, count: usize, momentum: Constant) -> Result<Kernel> {
    Text {
        sizes: &[("COUNT", count)],
        float: Some(("MOMENTUM", momentum)),
        lanes: 1,
        kernel: "12_muon",
        bindings: &[
            read("gradients"),
            read_write("moment1"),
            read_write("direction"),
            read_write("squares"),
            read("optimizer"),
            uniform("step"),
            uniform("range"),
            uniform("place"),
        ],
    }
    .reduced(caps, KernelSpec::Muon { count, momentum }, 1024, muon_parts(count))
}

/// `muon_scale_forward` of a matrix of `count` elements whose squares are in `parts` parts. Grid: as
/// [`muon`]'s.
pub fn muon_scale(caps: &Capabilities, count: usize, parts: usize) -> Result<Kernel> {
    Text {
        sizes: &[("COUNT", count), ("PARTS", parts)],
        float: None,
        lanes: 1,
        kernel: "12_muon_scale",
        bindings: &[read("squares"), read_write("direction")],
    }
    .reduced(caps, KernelSpec::MuonScale { count, parts }, 1024, muon_parts(count))
}

/// `muon_polynomial_forward` of a matrix of `side` rows. Grid: one invocation per element.
pub fn muon_polynomial(caps: &Capabilities, side: usize) -> Result<Kernel> {
    Text {
        sizes: &[("SIDE", side)],
        float: None,
        lanes: 1,
        kernel: "12_muon_polynomial",
        bindings: &[read("gram"), read_write("square")],
    }
    .flat(caps, KernelSpec::MuonPolynomial { side }, side * side)
}

/// `muon_update_forward` of a run of `count` elements, `rate` times the learning rate. Grid: one invocation per
/// element.
pub fn muon_update(caps: &Capabilities, count: usize, rate: Constant) -> Result<Kernel> {
    Text {
        sizes: &[("COUNT", count)],
        float: Some(("RATE", rate)),
        lanes: 1,
        kernel: "12_muon_update",
        bindings: &[
            read_write("weights"),
            read("direction"),
            read("optimizer"),
            uniform("step"),
            uniform("range"),
        ],
    }
    .flat(caps, KernelSpec::MuonUpdate { count, rate }, count)
}

/// `average_forward` of a run of `count` elements, the share of a step's weights `share`. Grid: one invocation per
/// element.
pub fn average(caps: &Capabilities, count: usize, share: Constant) -> Result<Kernel> {
    Text {
        sizes: &[],
        float: Some(("SHARE", share)),
        lanes: 1,
        kernel: "12_average",
        bindings: &[
            read_write("weights"),
            read_write("averages"),
            read("optimizer"),
            uniform("step"),
        ],
    }
    .flat(caps, KernelSpec::Average { count, share }, count)
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
    kernel: &'static str,
    bindings: &[Binding],
) -> Result<Kernel> {
    let lanes = elements(count);
    let text = Text { sizes: &[], float: None, lanes, kernel, bindings };
    text.flat(caps, spec, count / lanes)
}

/// What a kernel is made of.
struct Text<'a> {
    sizes: &'a [(&'static str, usize)],
    float: Option<(&'static str, Constant)>,
    /// Elements of a load.
    lanes: usize,
    kernel: &'static str,
    bindings: &'a [Binding],
}

impl Text<'_> {
    fn composer(&self, spec: KernelSpec, size: u32, subgroups: Option<bool>) -> Composer {
        let mut composer = Composer::new(spec, size).vectors(self.lanes);
        for (name, value) in self.sizes {
            composer = composer.size(name, *value);
        }
        if let Some((name, value)) = self.float {
            composer = composer.float(name, value.0 as f32);
        }
        let momentum = matches!(spec, KernelSpec::Sgd { momentum: true, .. });
        composer = composer.when("MOMENTUM", momentum).module(self.kernel);
        if let Some(subgroups) = subgroups {
            composer = composer.reduction(subgroups);
        }
        composer
    }

    /// One invocation per element.
    fn flat(&self, caps: &Capabilities, spec: KernelSpec, count: usize) -> Result<Kernel> {
        let size = workgroup_size(caps, 256, 1, spec.name())?;
        let flat = Grid::Flat { rows: 1, per_block: count, per_group: size as usize };
        self.composer(spec, size, None).finish(
            caps,
            self.bindings,
            flat.fixed(caps, 1)?,
            "flat",
            "one invocation per element, workgroup as large as the device allows up to 256",
        )
    }

    /// So many workgroups, which reduce as rows of so many columns are reduced.
    fn reduced(
        &self,
        caps: &Capabilities,
        spec: KernelSpec,
        columns: usize,
        groups: usize,
    ) -> Result<Kernel> {
        let (subgroups, why) = reduction(caps);
        let size = row_workgroup(caps, columns, spec.name())?;
        self.composer(spec, size, Some(subgroups)).finish(
            caps,
            self.bindings,
            Grid::Fixed { x: groups as u32, y: 1 },
            variant(subgroups),
            why,
        )
    }
}
