//! Gradients of weights whose products are split along K: one kernel adds up the parts of several.

use crate::caps::Capabilities;
use crate::error::Result;
use crate::format::WriteMode;
use crate::kernels::compose::{Composer, Grid, Kernel, Spec, read, read_write, uniform};
use crate::kernels::limits::workgroup_size;

/// A gradient, and the parts that a product has left of it, one after the other. All in elements, multiples of 4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GradientParts {
    /// Elements of the gradient and of each part.
    pub elements: usize,
    pub count: usize,
    /// Where the first part is among the bound ones, and the gradient among those.
    pub places: [usize; 2],
}

/// Gradients that one dispatch adds up: the first `count` of `each`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GradientSums {
    pub mode: WriteMode,
    pub count: usize,
    pub each: [GradientParts; Self::MOST],
}

impl GradientSums {
    /// The matrices of a layer.
    pub const MOST: usize = 4;
}

/// Grid: one invocation for each four elements of the gradients.
impl Spec for GradientSums {
    fn name(&self) -> &'static str {
        "gradient_sum"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let size = workgroup_size(caps, 256, 1, self.name())?;
        let each = &self.each[..self.count];
        let vectors = each.iter().map(|one| one.elements / 4).sum();
        let grid = Grid::Flat { rows: 1, per_block: vectors, per_group: size as usize };
        Composer::new(*self, size)
            .unrolled("PRODUCTS", self.count)
            .sizes("VECTORS", each.iter().map(|one| one.elements / 4))
            .sizes("PART_COUNTS", each.iter().map(|one| one.count))
            .sizes("FROM", each.iter().map(|one| one.places[0] / 4))
            .sizes("TO", each.iter().map(|one| one.places[1] / 4))
            .size("WRITE_MODE", self.mode.constant() as usize)
            .module("03_gradient_sum")
            .finish(
                caps,
                &[read("parts"), read_write("gradient"), uniform("step")],
                grid.fixed(caps, 1)?,
                format!("{} gradients, vec4", self.count),
                "products before it were split along K",
            )
    }
}
