//! Packed weights of inference: packing a matrix, unpacking it for kernels that read f32.

#[cfg(feature = "testing")]
pub(crate) mod cases;
#[cfg(feature = "testing")]
pub(crate) mod twin;

use super::compose::{Binding, Composer, Grid, Kernel, Spec, read, read_write};
use crate::caps::Capabilities;
use crate::error::{Error, Result};
use crate::format::{GROUP, WeightFormat};

/// One invocation for each of `count` units.
fn finish(
    composer: Composer,
    caps: &Capabilities,
    bindings: &[Binding],
    format: WeightFormat,
    count: usize,
    reason: &str,
) -> Result<Kernel> {
    let per_group = composer.workgroup_size();
    let grid = Grid::Flat { rows: 1, per_block: count, per_group }.fixed(caps, 1)?;
    composer.finish(caps, bindings, grid, format.name(), reason)
}

/// A matrix of f32 into a packed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PackWeights {
    pub format: WeightFormat,
    pub rows: usize,
    pub columns: usize,
}

impl Spec for PackWeights {
    fn name(&self) -> &'static str {
        "pack_weights_forward"
    }

    /// `internal` for f32.
    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { format, rows, columns } = *self;
        if format == WeightFormat::F32 {
            return Err(Error::internal("f32 is not packed"));
        }
        let composer = Composer::flat(caps, *self)?;
        let bindings = [read("matrix"), read_write("packed")];
        let elements = rows * columns;
        if format == WeightFormat::F16 {
            let vectors = elements / 4;
            let composer = composer.size("VECTORS", vectors).module("08_pack_weights_f16");
            let reason = "one invocation per four elements";
            return finish(composer, caps, &bindings, format, vectors, reason);
        }
        let groups = elements / GROUP;
        let composer = composer
            .size("GROUPS", groups)
            .size("WORDS", GROUP * 4 / format.elements())
            .when("INT8", format == WeightFormat::Int8)
            .module("08_pack_weights");
        let reason = "one invocation per group of 32 elements";
        finish(composer, caps, &bindings, format, groups, reason)
    }
}
