//! The optimizers whose update of an element depends on nothing but its own gradient and state, which lies
//! as gradients do.

use super::{Optimizer, StateSet, Stored, Trained, decayed, of, optimizer_state, stored_sets};
use crate::error::Result;
use crate::kernels as k;
use crate::params::{Params, Update};
use crate::plan::{Buffer, Builder, Launch};

/// What such an optimizer is.
trait Rule {
    fn state(&self) -> &'static [StateSet];

    /// Appends the update of a run of weights.
    fn update(&self, builder: &mut Builder<'_>, run: &Update) -> Result<()>;
}

impl<R: Rule> Optimizer for R {
    fn state(&self, _: &Trained) -> &'static [StateSet] {
        Rule::state(self)
    }

    fn stored(&self, layout: &Params) -> Vec<Stored> {
        stored_sets(layout, Rule::state(self))
    }

    fn updates(&self, builder: &mut Builder<'_>, params: &Params, state: &Params) -> Result<()> {
        params.updates(state).iter().try_for_each(|run| self.update(builder, run))
    }
}

/// Of both moments in f32.
pub(super) const MOMENTS: &[StateSet] = &[
    StateSet::numbers("exp_avg", Buffer::Moment1),
    StateSet::numbers("exp_avg_sq", Buffer::Moment2),
];

/// AdamW (Loshchilov and Hutter, arXiv:1711.05101).
pub(super) struct AdamW;

impl Rule for AdamW {
    fn state(&self) -> &'static [StateSet] {
        MOMENTS
    }

    fn update(&self, builder: &mut Builder<'_>, run: &Update) -> Result<()> {
        let kernel = k::adamw(builder.caps, run.weights.len)?;
        let launch = update(builder, "adamw", kernel, run)
            .bind("moment1", of(Buffer::Moment1, run.state))
            .bind("moment2", of(Buffer::Moment2, run.state));
        builder.dispatch(launch.flops(14.0 * run.weights.len as f64))
    }
}

/// Stochastic gradient descent as `torch.optim.SGD` with dampening 0: the decay is coupled.
pub(super) struct Sgd {
    pub momentum: bool,
}

impl Rule for Sgd {
    fn state(&self) -> &'static [StateSet] {
        const ONE: &[StateSet] = &[StateSet::numbers("momentum_buffer", Buffer::Moment1)];
        if self.momentum { ONE } else { &[] }
    }

    fn update(&self, builder: &mut Builder<'_>, run: &Update) -> Result<()> {
        let kernel = k::sgd(builder.caps, run.weights.len, self.momentum)?;
        let moment = self.momentum.then(|| of(Buffer::Moment1, run.state));
        let launch = update(builder, "sgd", kernel, run).bind_some("moment1", moment);
        builder.dispatch(launch.flops(6.0 * run.weights.len as f64))
    }
}

/// Lion (Chen et al., arXiv:2302.06675).
pub(super) struct Lion;

impl Rule for Lion {
    fn state(&self) -> &'static [StateSet] {
        const { &[StateSet::numbers("exp_avg", Buffer::Moment1)] }
    }

    fn update(&self, builder: &mut Builder<'_>, run: &Update) -> Result<()> {
        let kernel = k::lion(builder.caps, run.weights.len)?;
        let launch = update(builder, "lion", kernel, run);
        let launch = launch.bind("moment1", of(Buffer::Moment1, run.state));
        builder.dispatch(launch.flops(10.0 * run.weights.len as f64))
    }
}

/// What all updates of a run bind.
fn update(builder: &mut Builder<'_>, label: &str, kernel: k::Kernel, run: &Update) -> Launch {
    Launch::new(label, kernel)
        .bind("weights", of(Buffer::Weights, run.weights))
        .bind("gradients", of(Buffer::Gradients, run.state))
        .bind("optimizer", optimizer_state())
        .bind("range", decayed(builder, run))
}
