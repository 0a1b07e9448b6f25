//! The optimizers whose update of an element depends on nothing but its own gradient and state.

use super::{Optimizer, StateSet, decayed, of, optimizer_state};
use crate::error::Result;
use crate::kernels as k;
use crate::params::Update;
use crate::plan::{Buffer, Builder};

/// AdamW (Loshchilov and Hutter, arXiv:1711.05101).
pub(super) struct AdamW;

impl Optimizer for AdamW {
    fn state(&self) -> &'static [StateSet] {
        &[("exp_avg", Buffer::Moment1), ("exp_avg_sq", Buffer::Moment2)]
    }

    fn update(&self, builder: &mut Builder<'_>, run: &Update) -> Result<()> {
        let slices = vec![
            of(Buffer::Weights, run.weights),
            of(Buffer::Gradients, run.state),
            of(Buffer::Moment1, run.state),
            of(Buffer::Moment2, run.state),
            optimizer_state(),
            builder.step(),
            decayed(builder, run),
        ];
        let kernel = k::adamw(builder.caps, run.weights.len)?;
        builder.dispatch("adamw", kernel, slices, 14.0 * run.weights.len as f64)
    }
}

/// Stochastic gradient descent as `torch.optim.SGD` with dampening 0: the decay is coupled.
pub(super) struct Sgd {
    pub momentum: bool,
}

impl Optimizer for Sgd {
    fn state(&self) -> &'static [StateSet] {
        if self.momentum { &[("momentum_buffer", Buffer::Moment1)] } else { &[] }
    }

    fn update(&self, builder: &mut Builder<'_>, run: &Update) -> Result<()> {
        let kernel = k::sgd(builder.caps, run.weights.len, self.momentum)?;
        one_moment(builder, "sgd", kernel, run, 6.0)
    }
}

/// Lion (Chen et al., arXiv:2302.06675).
pub(super) struct Lion;

impl Optimizer for Lion {
    fn state(&self) -> &'static [StateSet] {
        &[("exp_avg", Buffer::Moment1)]
    }

    fn update(&self, builder: &mut Builder<'_>, run: &Update) -> Result<()> {
        let kernel = k::lion(builder.caps, run.weights.len)?;
        one_moment(builder, "lion", kernel, run, 10.0)
    }
}

/// The dispatch of a kernel with one moment at most, bound last.
fn one_moment(
    builder: &mut Builder<'_>,
    label: &str,
    kernel: k::Kernel,
    run: &Update,
    flops_each: f64,
) -> Result<()> {
    let mut slices = vec![
        of(Buffer::Weights, run.weights),
        of(Buffer::Gradients, run.state),
        optimizer_state(),
        builder.step(),
        decayed(builder, run),
        of(Buffer::Moment1, run.state),
    ];
    slices.truncate(kernel.bindings.len());
    builder.dispatch(label, kernel, slices, flops_each * run.weights.len as f64)
}
