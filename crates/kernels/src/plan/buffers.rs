//! Sizes of the buffers that plans bind. Nothing else decides them.

use super::{Buffer, Plan, RANGE_STRIDE};
use std::collections::BTreeMap;

/// Bytes by buffer.
pub type BufferSizes = BTreeMap<Buffer, u64>;

/// What a device allocates for a buffer of `bytes` bytes.
pub const fn allocated_bytes(bytes: u64) -> u64 {
    let padded = bytes.next_multiple_of(16);
    if padded == 0 { 16 } else { padded }
}

impl Plan {
    /// Bytes of [`Buffer::Ranges`].
    pub fn ranges_bytes(&self) -> u64 {
        self.ranges.len().max(1) as u64 * RANGE_STRIDE
    }

    /// Bytes of every buffer that the plan binds: the largest end of any slice. A plan's own
    /// [`Buffer::Ranges`], and [`Buffer::Given`], which a caller owns, are not among them.
    pub fn buffers(&self) -> BufferSizes {
        buffers([self])
    }
}

/// Bytes of every buffer that any of these plans binds, as [`Plan::buffers`] of one.
pub fn buffers<'a>(plans: impl IntoIterator<Item = &'a Plan>) -> BufferSizes {
    let mut sizes = BufferSizes::new();
    for slice in plans.into_iter().flat_map(|plan| &plan.dispatches).flat_map(|d| &d.slices) {
        if matches!(slice.buffer, Buffer::Ranges | Buffer::Given(_)) {
            continue;
        }
        let bytes = sizes.entry(slice.buffer).or_default();
        *bytes = (*bytes).max(slice.offset + slice.bytes);
    }
    sizes
}
