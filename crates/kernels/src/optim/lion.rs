//! Lion (Chen et al., arXiv:2302.06675).

use super::rule::{BASE, Bounds, Number, Rule, State};
use super::{Content, ONE_MOMENT, StateSet, adamw, names, of, update};
use crate::kernels::{Spec, UpdateKernel, UpdateText};
use crate::plan::Buffer;

pub(super) static RULE: Rule = Rule {
    name: "lion",
    what: "`\"lion\"` keeps one moment.",
    learning_rate: 1e-4,
    weight_decay: 1.0,
    numbers: NUMBERS,
    carried: adamw::carried,
    state: State::AsGradients(
        |_| const { &[StateSet::new("exp_avg", Buffer::Moment1, Content::Means)] },
    ),
    updates: |_, builder, params, state| {
        params.updates(state).iter().try_for_each(|run| {
            let kernel = LION.of([run.weights.len, 0, 0]).kernel(builder.caps)?;
            let launch = update(builder, "lion", kernel, run);
            let launch = launch.bind("moment1", of(Buffer::Moment1, run.state));
            builder.dispatch(launch.flops(10.0 * run.weights.len as f64))
        })
    },
    kernels: &[&LION],
    ..BASE
};

const NUMBERS: &[Number] = &[
    Number::new("beta1", 0.9, Bounds::Share, "the moment's share of a step's direction"),
    Number::new("beta2", 0.99, Bounds::Share, "decay rate of the moment"),
];

/// Size: elements of a run. Grid: one invocation per vector.
static LION: UpdateKernel = UpdateKernel {
    name: "lion_forward",
    make: |spec, caps| {
        UpdateText {
            numbers: &names(NUMBERS),
            kernel: "12_lion",
            bindings: &ONE_MOMENT,
            ..UpdateText::default()
        }
        .vectors(caps, spec, spec.sizes[0])
    },
    #[cfg(feature = "testing")]
    tests: twin::LION,
};

#[cfg(feature = "testing")]
pub(crate) mod twin;
