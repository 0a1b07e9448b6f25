//! AdamW (Loshchilov and Hutter, arXiv:1711.05101).

use super::pieces::{Piece, Pieces};
use super::rule::{BASE, Bounds, Carried, Number, Optimizer, Rule, State};
use super::{Content, StateSet, names, of};
use crate::caps::Capabilities;
use crate::error::Result;
use crate::kernels::{
    Binding, Kernel, Spec, UpdateKernel, UpdateSpec, UpdateText, read, read_write, uniform,
};
use crate::params::Update;
use crate::plan::{Buffer, Builder};

pub(super) static RULE: Rule = Rule {
    name: "adamw",
    what: "`\"adamw\"` keeps two moments.",
    numbers: NUMBERS,
    carried,
    state: State::AsGradients(|_| MOMENTS),
    updates: |_, builder, params, state| {
        params.updates(state).iter().try_for_each(|run| update(builder, run))
    },
    kernels: &[&ADAMW, &PLACED],
    ..BASE
};

pub(super) const NUMBERS: &[Number] = &[
    Number::new("beta1", 0.9, Bounds::Share, "decay rate of the first moment"),
    Number::new("beta2", 0.95, Bounds::Share, "decay rate of the second moment"),
    Number::new("epsilon", 1e-8, Bounds::Positive, "added to the root of the second moment"),
];

/// The biases of both moments.
pub(super) fn carried(optimizer: &Optimizer) -> [Carried; 2] {
    ["beta1", "beta2"].map(|name| Carried::Rate(optimizer.number(name)))
}

/// Both moments in f32.
pub(super) const MOMENTS: &[StateSet] = &[
    StateSet::new("exp_avg", Buffer::Moment1, Content::Means),
    StateSet::new("exp_avg_sq", Buffer::Moment2, Content::Squares),
];

fn update(builder: &mut Builder<'_>, run: &Update) -> Result<()> {
    let len = run.weights.len;
    let kernel = ADAMW.of([len, 0, 0]).kernel(builder.caps)?;
    let launch = super::update(builder, "adamw", kernel, run)
        .bind("moment1", of(Buffer::Moment1, run.state))
        .bind("moment2", of(Buffer::Moment2, run.state));
    builder.dispatch(launch.flops(14.0 * len as f64))
}

/// The update of a tensor whose moments are not laid out as its gradients.
pub(super) fn update_placed(
    builder: &mut Builder<'_>,
    pieces: &Pieces<'_>,
    piece: &Piece,
) -> Result<()> {
    let len = piece.weights.len;
    let kernel = PLACED.of([len, 0, 0]).kernel(builder.caps)?;
    let at = [piece.range(), piece.place()];
    let launch = pieces.launch(builder, "adamw", kernel, piece, at).bind_all(pieces.states(piece));
    builder.dispatch(launch.flops(14.0 * len as f64))
}

const BINDINGS: [Binding; 8] = [
    read_write("weights"),
    read("gradients"),
    read_write("moment1"),
    read_write("moment2"),
    read("optimizer"),
    uniform("step"),
    uniform("range"),
    uniform("place"),
];

/// Size: elements of a run. Grid: one invocation per vector.
static ADAMW: UpdateKernel = UpdateKernel {
    name: "adamw_forward",
    make: |spec, caps| {
        UpdateText {
            numbers: &names(NUMBERS),
            kernel: "12_adamw",
            bindings: &BINDINGS[..7],
            ..UpdateText::default()
        }
        .vectors(caps, spec, spec.sizes[0])
    },
    #[cfg(feature = "testing")]
    tests: twin::ADAMW,
};

/// Size: elements. Grid: one invocation per element.
static PLACED: UpdateKernel = UpdateKernel {
    name: "adamw_placed_forward",
    make: placed,
    #[cfg(feature = "testing")]
    tests: twin::PLACED,
};

fn placed(spec: UpdateSpec, caps: &Capabilities) -> Result<Kernel> {
    UpdateText {
        sizes: &[("COUNT", spec.sizes[0])],
        numbers: &names(NUMBERS),
        kernel: "12_adamw_placed",
        bindings: &BINDINGS,
        ..UpdateText::default()
    }
    .flat(caps, spec, spec.sizes[0])
}

#[cfg(feature = "testing")]
pub(crate) mod twin;
