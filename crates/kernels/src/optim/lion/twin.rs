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

pub(in crate::optim) const LION: UpdateTests =
    UpdateTests { twin: twin!(lion), sizes: &[[40_000, 0, 0], [40_001, 0, 0]], problems: runs };

/// One update in place, decoupled decay only where `decays` says so.
pub fn lion_forward<R: Real>(
    weights: &mut [R],
    gradients: &[R],
    moment: &mut [R],
    options: &StepOptions<R>,
    decision: &Decision<R>,
    decays: bool,
) {
    if !decision.update {
        return;
    }
    let [[beta1, rest1], [beta2, rest2], ..] = options.numbers;
    let decay = options.decay(decays);
    for (i, w) in weights.iter_mut().enumerate() {
        let (gradient, m) = (gradients[i] * decision.factor, moment[i]);
        let mean = beta1 * m + rest1 * gradient;
        moment[i] = beta2 * m + rest2 * gradient;
        let direction = if mean > R::ZERO {
            R::ONE
        } else if mean < R::ZERO {
            -R::ONE
        } else {
            R::ZERO
        };
        *w = *w - decay * *w - options.learning_rate * direction;
    }
}

fn lion<R: Real>(on: &mut Cpu<R>) -> Result<()> {
    let Some((options, decision)) = on.updates()? else { return Ok(()) };
    let count = on.spec.sizes[0];
    let mut weights = on.read("weights", 0, count)?;
    let gradients = on.read("gradients", 0, count)?;
    let mut moment = on.read("moment1", 0, count)?;
    for (part, decays) in on.decayed(count)? {
        let (w, m) = (&mut weights[part.clone()], &mut moment[part.clone()]);
        lion_forward(w, &gradients[part], m, &options, &decision, decays);
    }
    on.write("weights", 0, &weights)?;
    on.write_state("moment1", 0, &moment)
}

fn runs(lane: &Lane) -> Vec<Problem> {
    let step = step_of(&RULE);
    let [beta1, rest1, ..] = step.numbers[0];
    let problem = |(count, decay_end, update)| {
        let [weights, mut gradients, mut moment] = [(); 3].map(|()| lane.normal(count));
        // A mean near 0 has the sign of its rounding: such gradients are replaced. A mean of 0 has none.
        for (g, m) in gradients.iter_mut().zip(&moment) {
            let (old, new) = (beta1 * m, rest1 * 0.37 * *g);
            if (old + new).abs() < 1e-3 * (old.abs() + new.abs()) {
                *g = *m;
            }
        }
        (gradients[count / 2], moment[count / 2]) = (0.0, 0.0);
        one_moment([&weights, &gradients, &moment], decided(update, &step), decay_end)
    };
    RUNS.map(problem).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::twins::check::assert_close;

    #[test]
    fn it_steps_by_the_sign_of_the_mean() {
        let options = StepOptions {
            learning_rate: 0.1,
            weight_decay: 0.1,
            max_grad_norm: 1.0,
            gradient_scale: 1.0,
            carried: [0.0; 4],
            numbers: [[0.9, 0.1], [0.95, 0.05], [0.0; 2], [0.0; 2], [0.0; 2], [0.0; 2]],
        };
        let decided = Decision { norm: 1.0, update: true, factor: 0.5, carried: [0.0; 2] };
        let (mut weights, mut moment) = (vec![0.5, 0.5, 0.5], vec![1.0, 0.0, 0.0]);
        lion_forward(&mut weights, &[-1.0, -1.0, 0.0], &mut moment, &options, &decided, true);
        // 0.9 · 1 − 0.1 · 0.5 is above 0, −0.05 below.
        assert_close("weights", &weights, &[0.495 - 0.1, 0.495 + 0.1, 0.495], 1e-15, 0.0);
        assert_close("moment", &moment, &[0.95 - 0.025, -0.025, 0.0], 1e-15, 0.0);
        let before = (weights.clone(), moment.clone());
        let still = Decision { update: false, ..decided };
        lion_forward(&mut weights, &[f64::NAN; 3], &mut moment, &options, &still, true);
        assert_eq!((weights, moment), before);
    }
}
