//! Stochastic gradient descent as `torch.optim.SGD` with dampening 0: the decay is coupled.

use super::rule::{BASE, Bounds, Carried, Number, Optimizer, Rule, State};
use super::{Content, ONE_MOMENT, StateSet, names, of, update};
use crate::caps::Capabilities;
use crate::error::Result;
use crate::kernels::{Kernel, Spec, UpdateKernel, UpdateSpec, UpdateText};
use crate::plan::Buffer;

pub(super) static RULE: Rule = Rule {
    name: "sgd",
    what: "`\"sgd\"` keeps a velocity, or with `momentum: 0` nothing; its decay is coupled, as in PyTorch: it adds to \
           the gradient after clipping, and so to the velocity.",
    learning_rate: 0.1,
    weight_decay: 1e-3,
    coupled: true,
    numbers: NUMBERS,
    carried: |optimizer| [Carried::Rate(optimizer.number("momentum")), Carried::Rate(0.0)],
    state: State::AsGradients(|optimizer| {
        const ONE: &[StateSet] =
            &[StateSet::new("momentum_buffer", Buffer::Moment1, Content::Means)];
        if has_velocity(optimizer) { ONE } else { &[] }
    }),
    updates: |optimizer, builder, params, state| {
        params.updates(state).iter().try_for_each(|run| {
            let (len, velocity) = (run.weights.len, has_velocity(optimizer));
            let kernel = SGD.of([len, usize::from(velocity), 0]).kernel(builder.caps)?;
            let moment = velocity.then(|| of(Buffer::Moment1, run.state));
            let launch = update(builder, "sgd", kernel, run).bind_some("moment1", moment);
            builder.dispatch(launch.flops(6.0 * len as f64))
        })
    },
    kernels: &[&SGD],
    ..BASE
};

const NUMBERS: &[Number] = &[Number::new(
    "momentum",
    0.9,
    Bounds::Share,
    "how much of the velocity a step keeps. With 0 there is no velocity, and no state",
)];

fn has_velocity(optimizer: &Optimizer) -> bool {
    optimizer.number("momentum") > 0.0
}

/// Sizes: elements of a run, and whether there is a velocity. Grid: one invocation per vector.
static SGD: UpdateKernel = UpdateKernel {
    name: "sgd_forward",
    make: sgd,
    #[cfg(feature = "testing")]
    tests: twin::SGD,
};

fn sgd(spec: UpdateSpec, caps: &Capabilities) -> Result<Kernel> {
    let [count, velocity, _] = spec.sizes;
    UpdateText {
        numbers: &names(NUMBERS),
        when: Some(("VELOCITY", velocity == 1)),
        kernel: "12_sgd",
        bindings: &ONE_MOMENT[..5 + velocity],
        ..UpdateText::default()
    }
    .vectors(caps, spec, count)
}

#[cfg(feature = "testing")]
pub(crate) mod twin;
