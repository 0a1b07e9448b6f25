//! Workgroups within a device's limits.

use super::compose::{Binding, Composer, Grid, Kernel, Spec};
use crate::caps::Capabilities;
use crate::error::{Error, Result};

/// The largest power of two up to `wanted` that the device allows as a workgroup size.
///
/// # Errors
/// `limit-exceeded` when not even `least` fits.
pub(super) fn workgroup_size(
    caps: &Capabilities,
    wanted: u32,
    least: u32,
    what: &str,
) -> Result<u32> {
    let allowed = caps.limits.workgroup_invocations();
    if allowed < least {
        let name = "maxComputeInvocationsPerWorkgroup";
        return Err(Error::limit(name, u64::from(allowed), u64::from(least), what));
    }
    Ok(wanted.min(1 << allowed.ilog2()))
}

/// Invocations of a workgroup that reduces one row of `columns` elements. A CPU runs one subgroup
/// of a workgroup at a time and pays for each switch at a barrier: there a workgroup is a subgroup.
pub(crate) fn row_workgroup(caps: &Capabilities, columns: usize, what: &str) -> Result<u32> {
    // The reduction costs log2(workgroup) barriers: no more invocations than a quarter of the row
    // can keep busy, at least one wide subgroup.
    let wanted = if caps.software {
        caps.subgroup_size[0].clamp(4, 8)
    } else {
        (columns / 4).next_power_of_two().clamp(64, 256) as u32
    };
    let size = workgroup_size(caps, wanted, 1, what)?;
    check_storage(caps, [4 * size], what)?;
    Ok(size)
}

/// How many elements of a row or a run of that length a load has ([`Composer::vectors`]).
pub(super) const fn elements(length: usize) -> usize {
    if length.is_multiple_of(4) { 4 } else { 1 }
}

/// Fails with the limit's name when a kernel's workgroup memory does not fit. `bytes` are the sizes of its variables;
/// WebGPU rounds each up to 16 bytes.
pub(crate) fn check_storage<const VARIABLES: usize>(
    caps: &Capabilities,
    bytes: [u32; VARIABLES],
    what: &str,
) -> Result<()> {
    let have = caps.limits.max_compute_workgroup_storage_size;
    let bytes: u32 = bytes.iter().map(|bytes| bytes.next_multiple_of(16)).sum();
    if bytes > have {
        let name = "maxComputeWorkgroupStorageSize";
        return Err(Error::limit(name, u64::from(have), u64::from(bytes), what));
    }
    Ok(())
}

/// The reduction module for a workgroup, and why it was chosen.
pub(super) fn reduction(caps: &Capabilities) -> (bool, &'static str) {
    if caps.reduces_by_subgroup() {
        (true, "subgroups of known id: one barrier per reduction")
    } else {
        (false, "no subgroups with ids: binary tree through workgroup memory")
    }
}

/// The name of the form that [`reduction`] says.
pub(super) fn variant(subgroups: bool) -> String {
    if subgroups { "subgroup".into() } else { "tree".into() }
}

/// The workgroup of [`Composer::flat`], where the device allows it.
pub(super) const FLAT_WORKGROUP: u32 = 256;
/// Why kernels have that workgroup.
const FLAT: &str = "one invocation per element, workgroup as large as the device allows up to 256";

impl Composer {
    /// A kernel in which each output element has one invocation.
    pub(super) fn flat(caps: &Capabilities, spec: impl Spec) -> Result<Self> {
        Ok(Self::new(spec, workgroup_size(caps, FLAT_WORKGROUP, 1, spec.name())?))
    }

    /// Finishes it with its file: one invocation for each of `width` elements of a row.
    pub(super) fn by_row(
        self,
        caps: &Capabilities,
        file: &'static str,
        bindings: &[Binding],
        width: usize,
    ) -> Result<Kernel> {
        let grid = Grid::Flat { rows: 1, per_block: width, per_group: self.workgroup_size() };
        self.module(file).finish(caps, bindings, grid, "flat", FLAT)
    }

    /// Finishes a kernel with an invocation for each of `count` elements, however many rows the batch has.
    pub(super) fn fixed(
        self,
        caps: &Capabilities,
        file: &'static str,
        bindings: &[Binding],
        count: usize,
    ) -> Result<Kernel> {
        let flat = Grid::Flat { rows: 1, per_block: count, per_group: self.workgroup_size() };
        self.module(file).finish(caps, bindings, flat.fixed(caps, 1)?, "flat", FLAT)
    }

    /// Finishes a kernel whose workgroups reduce, with its file.
    pub(super) fn reduced(
        self,
        caps: &Capabilities,
        file: &'static str,
        bindings: &[Binding],
        grid: Grid,
    ) -> Result<Kernel> {
        let (subgroups, why) = reduction(caps);
        let composer = self.reduction(subgroups).module(file);
        composer.finish(caps, bindings, grid, variant(subgroups), why)
    }
}
