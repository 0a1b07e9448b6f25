//! Optimizers: plans that turn gradients into updates of the weights.

use crate::caps::Capabilities;
use crate::error::Result;
use crate::kernels as k;
use crate::params::{Params, Run};
use crate::plan::{Buffer, Builder, METRICS_BYTES, OPTIMIZER_BYTES, Phase, Plan, Range, Slice};

/// AdamW (Loshchilov and Hutter, arXiv:1711.05101) behind clipping by the global norm. `state` is the
/// layout of gradients and moments.
///
/// # Errors
/// `limit-exceeded` when the device has no room for a workgroup.
pub fn adamw(caps: &Capabilities, params: &Params, state: &Params) -> Result<Plan> {
    let mut builder = Builder::new(caps, Phase::Optimizer, 1, Buffer::Step);
    decide(&mut builder, state)?;
    for update in params.updates(state) {
        let len = update.weights.len;
        let of = |set: fn(usize) -> Buffer, run: Run| {
            Slice::new(set(run.shard), run.offset as u64 * 4, len as u64 * 4)
        };
        let decayed = Range { row0: 0, rows: 1, col0: 0, cols: update.decayed as u32 };
        let slices = vec![
            of(Buffer::Weights, update.weights),
            of(Buffer::Gradients, update.state),
            of(Buffer::Moment1, update.state),
            of(Buffer::Moment2, update.state),
            optimizer_state(),
            builder.step(),
            builder.range(decayed),
        ];
        let kernel = k::adamw(caps, len)?;
        builder.dispatch("adamw", kernel, slices, 14.0 * len as f64)?;
    }
    Ok(builder.finish(&[]))
}

fn optimizer_state() -> Slice {
    Slice::new(Buffer::Optimizer, 0, OPTIMIZER_BYTES)
}

/// The global norm, and whether and how the step updates.
fn decide(builder: &mut Builder, state: &Params) -> Result<()> {
    let (caps, partials) = (builder.caps, k::GRAD_NORM_GROUPS);
    for (index, shard) in state.shards.iter().enumerate() {
        let gradients = Slice::new(Buffer::Gradients(index), 0, shard.len as u64 * 4);
        let (offset, bytes) = ((index * partials) as u64 * 4, partials as u64 * 4);
        let slices = vec![gradients, Slice::new(Buffer::Squares, offset, bytes), builder.step()];
        let kernel = k::grad_norm(caps)?;
        builder.dispatch("gradient norm", kernel, slices, 2.0 * shard.len as f64)?;
    }
    let squares = (partials * state.shards.len()) as u64 * 4;
    let slices = vec![
        Slice::new(Buffer::Squares, 0, squares),
        Slice::new(Buffer::Metrics, 0, METRICS_BYTES),
        optimizer_state(),
        builder.step(),
    ];
    let kernel = k::step_decision(caps, partials * state.shards.len())?;
    builder.dispatch("step decision", kernel, slices, squares as f64 / 4.0)
}
