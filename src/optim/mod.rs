//! Optimizers: plans that turn gradients into updates of the weights.
//!
//! All stand behind clipping by the global norm and the decision whether a step updates. What differs is the
//! [`Optimizer`] trait: the state that parameters have, and the updates of all of them.

mod coded;
mod kind;
mod muon;
mod pieces;
mod rules;
mod stored;

pub use kind::{Numbers, OptimizerKind};
pub use stored::{Content, StateSet, Stored, Trained, stored_sets};

use crate::caps::Capabilities;
use crate::error::Result;
use crate::kernels as k;
use crate::params::{Params, Run, Update};
use crate::plan::{
    Buffer, Builder, Launch, METRICS_BYTES, OPTIMIZER_BYTES, Phase, Plan, Range, Slice,
};

/// An optimizer: which state each trained parameter has, and how it is updated.
pub trait Optimizer {
    /// The state of a parameter, zero before the first step.
    fn state(&self, trained: &Trained) -> &'static [StateSet];

    /// The state of all parameters of a layout, in the order of a save.
    fn stored(&self, layout: &Params) -> Vec<Stored>;

    /// The most rows of a product in its plan; none: it has no product, and needs no slots.
    fn rows(&self, _state: &Params) -> Option<usize> {
        None
    }

    /// Appends the updates of all trained weights. `state` is the layout of gradients.
    ///
    /// # Errors
    /// `limit-exceeded` when the device has no room for a workgroup; `invalid-options` where the optimizer cannot
    /// train weights that lie as these do.
    fn updates(&self, builder: &mut Builder<'_>, params: &Params, state: &Params) -> Result<()>;
}

/// The plan of an optimizer's step, which reuses the slots of others, and of the averages behind it, if there are
/// any. `state` is the layout of gradients and state. `share` is what a step moves the average towards the
/// weights, from 0 to 1; none: there is no average.
///
/// # Errors
/// As [`Optimizer::updates`].
pub fn plan(
    caps: &Capabilities,
    optimizer: &dyn Optimizer,
    params: &Params,
    state: &Params,
    slots: &[u64],
    share: Option<f64>,
) -> Result<Plan> {
    // A plan's rows are a batch's; here they are those of the longest matrix that is multiplied.
    let rows = optimizer.rows(state);
    let mut builder = Builder::new(caps, Phase::Optimizer, rows.unwrap_or(1), Buffer::Step);
    decide(&mut builder, state)?;
    optimizer.updates(&mut builder, params, state)?;
    if let Some(share) = share {
        average(&mut builder, params, state, share)?;
    }
    Ok(builder.finish(if rows.is_some() { slots } else { &[] }))
}

/// The set of averages, for a save.
pub const AVERAGES: StateSet = StateSet::numbers("ema", Buffer::Average);

/// Appends a step of the moving average of all that is trained, the share of the weights as they are being
/// `share`.
///
/// # Errors
/// `limit-exceeded` when the device has no room for a workgroup.
fn average(builder: &mut Builder<'_>, params: &Params, state: &Params, share: f64) -> Result<()> {
    for Update { weights, state, .. } in params.updates(state) {
        let kernel = k::average(builder.caps, weights.len, k::Constant(share))?;
        let launch = Launch::new("average", kernel)
            .bind("weights", of(Buffer::Weights, weights))
            .bind("averages", of(Buffer::Average, state))
            .bind("optimizer", optimizer_state());
        builder.dispatch(launch.flops(3.0 * weights.len as f64))?;
    }
    Ok(())
}

/// The plan that begins averages, or exchanges them with the weights: the step's position says which.
///
/// # Errors
/// `limit-exceeded` when the device has no room for a workgroup.
pub fn average_plan(
    caps: &Capabilities,
    params: &Params,
    state: &Params,
    share: f64,
) -> Result<Plan> {
    let mut builder = Builder::new(caps, Phase::Optimizer, 1, Buffer::Step);
    average(&mut builder, params, state, share)?;
    Ok(builder.finish(&[]))
}

/// A run of one of the sets.
fn of(set: fn(usize) -> Buffer, run: Run) -> Slice {
    Slice::new(set(run.shard), run.offset as u64 * 4, run.len as u64 * 4)
}

/// The elements of a run that are decayed.
fn decayed(builder: &mut Builder<'_>, update: &Update) -> Slice {
    builder.range(Range { row0: 0, rows: 1, col0: 0, cols: update.decayed as u32 })
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
        let launch = Launch::new("gradient norm", k::grad_norm(caps)?)
            .bind("gradients", gradients)
            .bind("squares", Slice::new(Buffer::Squares, offset, bytes));
        builder.dispatch(launch.flops(2.0 * shard.len as f64))?;
    }
    let squares = (partials * state.shards.len()) as u64 * 4;
    let kernel = k::step_decision(caps, partials * state.shards.len())?;
    let launch = Launch::new("step decision", kernel)
        .bind("squares", Slice::new(Buffer::Squares, 0, squares))
        .bind("metrics", Slice::new(Buffer::Metrics, 0, METRICS_BYTES))
        .bind("optimizer", optimizer_state());
    builder.dispatch(launch.flops(squares as f64 / 4.0))
}
