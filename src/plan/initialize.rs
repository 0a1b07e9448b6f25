//! The plan that fills a new model's matrices.

use super::builder::Builder;
use super::{Buffer, Phase, Plan, Range, STEP_BYTES, Slice};
use crate::caps::Capabilities;
use crate::error::Result;
use crate::kernels as k;
use crate::layout::Layout;

/// Initial weights of every matrix; vectors are left as they are. [`Buffer::Step`] holds the
/// options of `00_initialize.wgsl`, and a `Range` of this plan what that calls a run.
///
/// # Errors
/// `limit-exceeded` when the device has no room for a workgroup.
pub fn initialize_plan(caps: &Capabilities, layout: &Layout) -> Result<Plan> {
    let mut builder = Builder::new(caps, Phase::Forward, 1, Buffer::Step);
    for (stream, tensor) in (0u32..).zip(&layout.tensors) {
        let mut index = 0;
        for run in layout.runs(tensor) {
            if tensor.shape.len() > 1 {
                let shard = Buffer::Weights(run.shard);
                let weights = Slice::new(shard, 0, layout.shards[run.shard].len as u64 * 4);
                let of_run = Range {
                    row0: run.offset as u32,
                    rows: run.len as u32,
                    col0: index,
                    cols: stream,
                };
                let options = Slice::new(Buffer::Step, 0, STEP_BYTES);
                let slices = vec![weights, options, builder.range(of_run)];
                let kernel = k::initialize(caps, run.len)?;
                builder.dispatch(&tensor.name, kernel, slices, 400.0 * run.len as f64)?;
            }
            index += run.len as u32;
        }
    }
    Ok(builder.finish(&[]))
}
