//! Workgroups within a device's limits.

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
pub(super) fn row_workgroup(caps: &Capabilities, columns: usize, what: &str) -> Result<u32> {
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

/// How many elements of a row or a run of that length a load has ([`Composer::vectors`](super::compose::Composer)).
pub(super) const fn elements(length: usize) -> usize {
    if length.is_multiple_of(4) { 4 } else { 1 }
}

/// Fails with the limit's name when a kernel's workgroup memory does not fit. `bytes` are the sizes of its variables;
/// WebGPU rounds each up to 16 bytes.
pub(super) fn check_storage<const VARIABLES: usize>(
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
