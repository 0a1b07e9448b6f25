//! Its kernels on the CPU, and dispatches of them.

use super::RULE;
use crate::error::Result;
use crate::kernels::optimizer::cases::update::{
    Problem, RUNS, UpdateTests, decided, one_moment, step_of,
};
use crate::kernels::optimizer::twin::update::{Cpu, twin};
use crate::kernels::optimizer::twin::{Decision, StepOptions};
use crate::testing::Lane;
use crate::twins::Real;

pub(in crate::optim) const SGD: UpdateTests = UpdateTests {
    twin: twin!(sgd),
    sizes: &[[40_000, 0, 0], [40_000, 1, 0], [40_001, 0, 0], [40_001, 1, 0]],
    problems: runs,
};

/// One update in place: the decay, where `decays` says so, is part of the gradient. Without a velocity the
/// gradient is one.
pub fn sgd_forward<R: Real>(
    weights: &mut [R],
    gradients: &[R],
    mut velocity: Option<&mut [R]>,
    options: &StepOptions<R>,
    decision: &Decision<R>,
    decays: bool,
) {
    if !decision.update {
        return;
    }
    let [[momentum, _], ..] = options.numbers;
    let decay = if decays { options.weight_decay } else { R::ZERO };
    for (i, w) in weights.iter_mut().enumerate() {
        let mut step = gradients[i] * decision.factor + decay * *w;
        if let Some(velocity) = &mut velocity {
            velocity[i] = momentum * velocity[i] + step;
            step = velocity[i];
        }
        *w = *w - options.learning_rate * step;
    }
}

fn sgd<R: Real>(on: &mut Cpu<R>) -> Result<()> {
    let Some((options, decision)) = on.updates()? else { return Ok(()) };
    let [count, kept, _] = on.spec.sizes;
    let mut weights = on.read("weights", 0, count)?;
    let gradients = on.read("gradients", 0, count)?;
    let mut velocity = if kept == 1 { Some(on.read("moment1", 0, count)?) } else { None };
    for (part, decays) in on.decayed(count)? {
        let velocity = velocity.as_mut().map(|velocity| &mut velocity[part.clone()]);
        let (weights, gradients) = (&mut weights[part.clone()], &gradients[part]);
        sgd_forward(weights, gradients, velocity, &options, &decision, decays);
    }
    on.write("weights", 0, &weights)?;
    velocity.map_or(Ok(()), |velocity| on.write_state("moment1", 0, &velocity))
}

fn runs(lane: &Lane) -> Vec<Problem> {
    let problem = |kept: usize, (count, decay_end, update)| {
        let [weights, gradients, moment] = [(); 3].map(|()| lane.normal(count));
        let decided = decided(update, &step_of(&RULE));
        let mut problem = one_moment([&weights, &gradients, &moment], decided, decay_end);
        problem.sizes[1] = kept;
        problem.operands.truncate(5 + kept);
        problem
    };
    [0, 1].into_iter().flat_map(|kept| RUNS.map(|run| problem(kept, run))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::twins::check::assert_close;

    const OPTIONS: StepOptions<f64> = StepOptions {
        learning_rate: 0.1,
        weight_decay: 0.1,
        max_grad_norm: 1.0,
        gradient_scale: 1.0,
        carried: [0.0; 4],
        numbers: [[0.9, 0.1], [0.0; 2], [0.0; 2], [0.0; 2], [0.0; 2], [0.0; 2]],
    };
    const DECIDED: Decision<f64> =
        Decision { norm: 1.0, update: true, factor: 0.5, carried: [0.0; 2] };

    #[test]
    fn descent_with_momentum_follows_the_textbook() {
        let (mut weights, mut velocity) = (vec![0.5], vec![0.0]);
        let (mut w, mut v) = (0.5f64, 0.0f64);
        for g in [0.2f64, -3.0, 1.0] {
            sgd_forward(&mut weights, &[g], Some(&mut velocity), &OPTIONS, &DECIDED, true);
            v = 0.9 * v + 0.5 * g + 0.1 * w;
            w -= 0.1 * v;
        }
        assert_close("weight and velocity", &[weights[0], velocity[0]], &[w, v], 1e-15, 0.0);
        // Without a velocity, and without decay.
        let mut weights = vec![0.5];
        sgd_forward(&mut weights, &[2.0], None, &OPTIONS, &DECIDED, false);
        assert_close("weight", &weights, &[0.4], 1e-15, 0.0);
        let still = Decision { update: false, ..DECIDED };
        sgd_forward(&mut weights, &[f64::NAN], Some(&mut velocity), &OPTIONS, &still, true);
        assert_close("weight", &weights, &[0.4], 1e-15, 0.0);
        assert!((velocity[0] - v).abs() < 1e-15);
    }
}
