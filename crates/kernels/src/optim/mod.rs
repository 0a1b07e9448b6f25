//! Optimizers: plans that turn gradients into updates of the weights.
//!
//! A [`Rule`] is one file: its numbers, its state and that state's layout, its dispatches. The CPU twins of its kernels
//! are in `twin.rs` below it. No other product code knows a rule by name. Before any rule come clipping by the global
//! norm and the decision whether a step updates.

pub(crate) mod adafactor;
pub(crate) mod adamw;
pub(crate) mod adamw8bit;
pub(crate) mod lion;
pub(crate) mod muon;
mod pieces;
mod rule;
pub(crate) mod sgd;
mod stored;
#[cfg(all(test, feature = "testing"))]
mod typescript;

/// All rules. The first is the default.
pub static RULES: &[&Rule] =
    &[&adamw::RULE, &adafactor::RULE, &adamw8bit::RULE, &lion::RULE, &muon::RULE, &sgd::RULE];

pub use rule::{Bounds, Number, Numbers, Optimizer, Rule, State};
pub use stored::{Content, StateSet, Stored, Trained, stored_sets};

use crate::caps::Capabilities;
use crate::error::Result;
use crate::kernels::{self as k, Binding, Spec, read, read_write, uniform};
use crate::params::{Params, Run, Update};
use crate::plan::{
    Buffer, Builder, Launch, METRICS_BYTES, OPTIMIZER_BYTES, Phase, Plan, Range, Slice,
};
use pieces::Pieces;
use std::sync::LazyLock;

/// The names of all rules' numbers.
fn number_names() -> &'static [&'static str] {
    static NAMES: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
        let mut all = vec![];
        for number in RULES.iter().flat_map(|rule| rule.numbers) {
            if !all.contains(&number.name) {
                all.push(number.name);
            }
        }
        all
    });
    &NAMES
}

/// The names by which a kernel's text knows a rule's numbers.
fn names(numbers: &[Number]) -> Vec<&'static str> {
    numbers.iter().map(|number| number.name).collect()
}

/// The tensors of an optimizer's state, set by set, in the order of a save.
pub fn stored_state(optimizer: &Optimizer, layout: &Params) -> Vec<Stored> {
    match optimizer.rule.state {
        State::AsGradients(sets) => stored_sets(layout, sets(optimizer)),
        State::PerTensor(_) => Pieces::new(layout, layout, &optimizer.rule.state).stored(),
    }
}

/// The plan of an optimizer's step, then of the averages of weights, if there are any. It reuses the `slots` of other
/// plans. `state` is the layout of gradients and state. `share` is what a step moves the average towards the weights,
/// from 0 to 1; none: there is no average.
///
/// # Errors
/// `limit-exceeded` when the device has no room for a workgroup; `invalid-options` where the optimizer cannot train
/// weights with this layout.
pub fn plan(
    caps: &Capabilities,
    optimizer: &Optimizer,
    params: &Params,
    state: &Params,
    slots: &[u64],
    share: Option<f64>,
) -> Result<Plan> {
    // A plan's rows are a batch's; here they are those of the longest matrix that is multiplied.
    let rows = (optimizer.rule.rows)(state);
    let mut builder = Builder::new(caps, Phase::Optimizer, rows, Buffer::Step);
    decide(&mut builder, state)?;
    (optimizer.rule.updates)(optimizer, &mut builder, params, state)?;
    if let Some(share) = share {
        average(&mut builder, params, state, share)?;
    }
    let slots = if builder.has_tensors() { slots } else { &[] };
    Ok(builder.finish(slots))
}

/// The set of averages, for a save.
pub const AVERAGES: StateSet = StateSet::new("ema", Buffer::Average, Content::Numbers);

/// Appends a step of the moving average of all trained weights. `share` is the share of the present weights.
///
/// # Errors
/// `limit-exceeded` when the device has no room for a workgroup.
fn average(builder: &mut Builder<'_>, params: &Params, state: &Params, share: f64) -> Result<()> {
    for Update { weights, state, .. } in params.updates(state) {
        let kernel =
            k::Average { count: weights.len, share: k::Constant(share) }.kernel(builder.caps)?;
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

/// Workgroups, and so partial sums, over a run of `count` elements.
fn parts_of(count: usize) -> usize {
    count.div_ceil(2048).min(k::GRAD_NORM_GROUPS)
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

/// What updates with at most one moment bind.
const ONE_MOMENT: [Binding; 6] = [
    read_write("weights"),
    read("gradients"),
    read("optimizer"),
    uniform("step"),
    uniform("range"),
    read_write("moment1"),
];

/// What all updates of a run bind.
fn update(builder: &mut Builder<'_>, label: &str, kernel: k::Kernel, run: &Update) -> Launch {
    Launch::new(label, kernel)
        .bind("weights", of(Buffer::Weights, run.weights))
        .bind("gradients", of(Buffer::Gradients, run.state))
        .bind("optimizer", optimizer_state())
        .bind("range", decayed(builder, run))
}

/// The global norm, and whether and how the step updates.
fn decide(builder: &mut Builder, state: &Params) -> Result<()> {
    let (caps, partials) = (builder.caps, k::GRAD_NORM_GROUPS);
    for (index, shard) in state.shards.iter().enumerate() {
        let gradients = Slice::new(Buffer::Gradients(index), 0, shard.len as u64 * 4);
        let (offset, bytes) = ((index * partials) as u64 * 4, partials as u64 * 4);
        let launch = Launch::new("gradient norm", k::GradNorm.kernel(caps)?)
            .bind("gradients", gradients)
            .bind("squares", Slice::new(Buffer::Squares, offset, bytes));
        builder.dispatch(launch.flops(2.0 * shard.len as f64))?;
    }
    let squares = (partials * state.shards.len()) as u64 * 4;
    let kernel = k::StepDecision { partials: partials * state.shards.len() }.kernel(caps)?;
    let launch = Launch::new("step decision", kernel)
        .bind("squares", Slice::new(Buffer::Squares, 0, squares))
        .bind("metrics", Slice::new(Buffer::Metrics, 0, METRICS_BYTES))
        .bind("optimizer", optimizer_state());
    builder.dispatch(launch.flops(squares as f64 / 4.0))
}
