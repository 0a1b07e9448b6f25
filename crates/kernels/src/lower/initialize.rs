//! The plan that fills a new model's matrices.

use crate::arch::Init;
use crate::caps::Capabilities;
use crate::error::Result;
use crate::kernels as k;
use crate::params::{ALIGN, Params};
use crate::plan::{Buffer, Builder, Launch, Phase, Plan, Range, STEP_BYTES, Slice};

/// Every device can bind a uniform at multiples of this.
pub const OPTIONS_STRIDE: u64 = 4 * ALIGN as u64;

/// Draws the weights that start normal; others are left as they are. [`Buffer::Step`] holds the options of
/// `00_initialize.wgsl` for each of [`Params::deviations`], [`OPTIONS_STRIDE`] bytes apart, and a `Range` of this plan
/// is what that file calls a run.
///
/// # Errors
/// `limit-exceeded` when the device has no room for a workgroup.
pub fn initialize_plan(caps: &Capabilities, params: &Params) -> Result<Plan> {
    let mut builder = Builder::new(caps, Phase::Forward, 1, Buffer::Step);
    let deviations = params.deviations();
    for (stream, tensor) in (0u32..).zip(&params.tensors) {
        let mut index = 0;
        for run in params.runs(tensor) {
            if let Init::Normal(std) = tensor.init {
                let place = deviations.iter().position(|&other| other == std).unwrap_or(0);
                let shard = Buffer::Weights(run.shard);
                let weights = Slice::new(shard, 0, params.shards[run.shard].len as u64 * 4);
                let of_run = Range {
                    row0: run.offset as u32,
                    rows: run.len as u32,
                    col0: index,
                    cols: stream,
                };
                let options = Slice::new(Buffer::Step, place as u64 * OPTIONS_STRIDE, STEP_BYTES);
                let launch = Launch::new(
                    &tensor.name,
                    builder.kernel(k::InitializeForward { count: run.len })?,
                )
                .bind("weights", weights)
                .bind("options", options)
                .bind("elements", builder.range(of_run));
                builder.dispatch(launch.flops(400.0 * run.len as f64))?;
            }
            index += run.len as u32;
        }
    }
    Ok(builder.finish(&[]))
}
