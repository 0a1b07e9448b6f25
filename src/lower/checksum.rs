//! The plan that tells a layout's weights from others.

use crate::caps::Capabilities;
use crate::error::Result;
use crate::kernels as k;
use crate::params::Params;
use crate::plan::{Buffer, Builder, Phase, Plan, Slice};

/// Bytes of the sums of a shard.
pub const CHECKSUM_BYTES: u64 = k::CHECKSUM_LANES as u64 * 4;

/// Sums of the words of each of a layout's shards, into [`Buffer::Checksums`], one shard's after the other's.
///
/// # Errors
/// `limit-exceeded` when the device has no room for a workgroup.
pub fn checksum_plan(caps: &Capabilities, params: &Params) -> Result<Plan> {
    let mut builder = Builder::new(caps, Phase::Forward, 1, Buffer::Step);
    for (index, shard) in params.shards.iter().enumerate() {
        let words = Slice::new(Buffer::Weights(index), 0, shard.len as u64 * 4);
        let sums = Slice::new(Buffer::Checksums, index as u64 * CHECKSUM_BYTES, CHECKSUM_BYTES);
        let kernel = k::checksum(caps, shard.len)?;
        builder.dispatch("checksum", kernel, vec![words, sums], 10.0 * shard.len as f64)?;
    }
    Ok(builder.finish(&[]))
}
