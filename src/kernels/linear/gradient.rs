//! Gradients of weights whose products are split along K: one kernel adds up the parts of several.

use crate::caps::Capabilities;
use crate::error::Result;
use crate::kernels::compose::{Composer, Grid, Kernel, read, read_write, uniform};
use crate::kernels::limits::workgroup_size;
use crate::kernels::shape::GradientSums;
use crate::kernels::spec::KernelSpec;

/// `gradient_sum`. Grid: one invocation for each four elements of the gradients.
pub fn gradient_sum(caps: &Capabilities, sums: GradientSums) -> Result<Kernel> {
    let spec = KernelSpec::GradientSum(sums);
    let size = workgroup_size(caps, 256, 1, spec.name())?;
    let each = &sums.each[..sums.count];
    let vectors = each.iter().map(|one| one.elements / 4).sum();
    let grid = Grid::Flat { rows: 1, per_block: vectors, per_group: size as usize };
    Composer::new(spec, size)
        .unrolled("PRODUCTS", sums.count)
        .sizes("VECTORS", each.iter().map(|one| one.elements / 4))
        .sizes("PART_COUNTS", each.iter().map(|one| one.count))
        .sizes("FROM", each.iter().map(|one| one.places[0] / 4))
        .sizes("TO", each.iter().map(|one| one.places[1] / 4))
        .size("WRITE_MODE", sums.mode.constant() as usize)
        .module("03_gradient_sum")
        .finish(
            caps,
            &[read("parts"), read_write("gradient"), uniform("step")],
            grid.fixed(caps, 1)?,
            format!("{} gradients, vec4", sums.count),
            "products before it were split along K",
        )
}
