//! The plan that tells a layout's weights from others.

use crate::caps::Capabilities;
use crate::error::Result;
use crate::kernels::{self as k, Spec};
use crate::params::Params;
use crate::plan::{Buffer, Builder, Launch, Phase, Plan, Slice};

/// Bytes of the sums of a shard.
pub const CHECKSUM_BYTES: u64 = k::CHECKSUM_LANES as u64 * 4;

/// Sums of the words of each of a layout's shards and packed parts, into [`Buffer::Checksums`], one after the
/// other.
///
/// # Errors
/// `limit-exceeded` when the device has no room for a workgroup.
pub fn checksum_plan(caps: &Capabilities, params: &Params) -> Result<Plan> {
    let mut builder = Builder::new(caps, Phase::Forward, 1, Buffer::Step);
    let shards =
        params.own_shards().map(|(index, shard)| (Buffer::Weights(index), shard.len as u64 * 4));
    let packed = params.own_packed().map(|(number, bytes)| (Buffer::Packed(number), bytes));
    for (index, (buffer, bytes)) in shards.chain(packed).enumerate() {
        let sums = Slice::new(Buffer::Checksums, index as u64 * CHECKSUM_BYTES, CHECKSUM_BYTES);
        let kernel = k::Checksum { count: bytes as usize / 4 }.kernel(caps)?;
        let launch = Launch::new("checksum", kernel).bind("words", Slice::new(buffer, 0, bytes));
        builder.dispatch(launch.bind("sums", sums).flops(2.5 * bytes as f64))?;
    }
    Ok(builder.finish(&[]))
}
