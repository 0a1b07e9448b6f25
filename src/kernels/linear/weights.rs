//! Packed weights of inference: their forms, packing a matrix, unpacking it for kernels that read f32.

use crate::caps::Capabilities;
use crate::error::{Error, Result};
use crate::format::{GROUP, WeightFormat};
use crate::kernels::compose::{Binding, Composer, Grid, Kernel, read, read_write};
use crate::kernels::limits::workgroup_size;
use crate::kernels::modules::UNIT;
use crate::kernels::spec::KernelSpec;

fn composer(caps: &Capabilities, spec: KernelSpec) -> Result<Composer> {
    let size = workgroup_size(caps, 256, 1, spec.name())?;
    Ok(Composer::new(spec, size))
}

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

/// `pack_weights_forward`: a matrix of f32 into a packed one. Bindings: matrix, packed.
///
/// # Errors
/// `limit-exceeded` when a workgroup does not fit.
pub fn pack_weights(
    caps: &Capabilities,
    format: WeightFormat,
    rows: usize,
    columns: usize,
) -> Result<Kernel> {
    if format == WeightFormat::F32 {
        return Err(Error::internal("f32 is not packed"));
    }
    let composer = composer(caps, KernelSpec::PackWeights { format, rows, columns })?;
    let bindings = [read("matrix"), read_write("packed")];
    let elements = rows * columns;
    if format == WeightFormat::F16 {
        let vectors = elements / 4;
        let composer = composer.size("VECTORS", vectors).module("08_pack_weights_f16");
        let reason = "one invocation per four elements";
        return finish(composer, caps, &bindings, format, vectors, reason);
    }
    let groups = elements / GROUP;
    let int8 = format == WeightFormat::Int8;
    let composer = composer
        .size("GROUPS", groups)
        .size("WORDS", GROUP * 4 / format.elements())
        .when("INT8", int8)
        .module("08_pack_weights");
    finish(composer, caps, &bindings, format, groups, "one invocation per group of 32 elements")
}

/// `unpack_weights_forward`: a packed matrix as f32, for kernels that read that. Bindings:
/// matrix, packed.
///
/// # Errors
/// As [`pack_weights`].
pub fn unpack_weights(
    caps: &Capabilities,
    format: WeightFormat,
    rows: usize,
    columns: usize,
) -> Result<Kernel> {
    let elements = rows * columns;
    let units = elements / UNIT;
    let composer =
        composer(caps, KernelSpec::UnpackWeights { format, rows, columns })?.size("UNITS", units);
    let composer = format.module(composer, elements).module("08_unpack_weights");
    finish(
        composer,
        caps,
        &[read_write("matrix"), read("packed")],
        format,
        units,
        "one invocation per eight elements",
    )
}
