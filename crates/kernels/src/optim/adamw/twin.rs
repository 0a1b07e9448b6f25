//! Its kernels on the CPU, and dispatches of them.

use super::RULE;
use crate::error::Result;
use crate::kernels::optimizer::cases::update::{
    BEHIND, Problem, RUNS, UpdateTests, decided, step_of,
};
use crate::kernels::optimizer::twin::update::{Cpu, twin};
use crate::kernels::optimizer::twin::{Decision, StepOptions};
use crate::testing::{Lane, Operand};
use crate::twins::Real;

pub(in crate::optim) const ADAMW: UpdateTests =
    UpdateTests { twin: twin!(adamw), sizes: &[[40_000, 0, 0], [40_001, 0, 0]], problems: runs };

pub(in crate::optim) const PLACED: UpdateTests =
    UpdateTests { twin: twin!(adamw_placed), sizes: &[[40_000, 0, 0]], problems: placed_runs };

/// One update in place, decoupled decay only where `decays` says so.
pub fn adamw_forward<R: Real>(
    weights: &mut [R],
    gradients: &[R],
    [moment1, moment2]: [&mut [R]; 2],
    options: &StepOptions<R>,
    decision: &Decision<R>,
    decays: bool,
) {
    if !decision.update {
        return;
    }
    let [[beta1, rest1], [beta2, rest2], [epsilon, _], ..] = options.numbers;
    let [correction1, correction2] = decision.carried;
    let decay = options.decay(decays);
    for (i, w) in weights.iter_mut().enumerate() {
        let gradient = gradients[i] * decision.factor;
        let m = beta1 * moment1[i] + rest1 * gradient;
        let v = beta2 * moment2[i] + rest2 * gradient * gradient;
        (moment1[i], moment2[i]) = (m, v);
        let denominator = (v / correction2).sqrt() + epsilon;
        *w = *w - decay * *w - options.learning_rate * (m / correction1) / denominator;
    }
}

fn adamw<R: Real>(on: &mut Cpu<R>) -> Result<()> {
    update(on, [0; 4])
}

fn adamw_placed<R: Real>(on: &mut Cpu<R>) -> Result<()> {
    let ([weight0, gradient0], [m0, v0]) = (on.places("range")?, on.places("place")?);
    update(on, [weight0, gradient0, m0, v0])
}

fn update<R: Real>(on: &mut Cpu<R>, [weight0, gradient0, m0, v0]: [usize; 4]) -> Result<()> {
    let Some((options, decision)) = on.updates()? else { return Ok(()) };
    let count = on.spec.sizes[0];
    let mut weights = on.read("weights", weight0, count)?;
    let gradients = on.read("gradients", gradient0, count)?;
    let mut m = on.read("moment1", m0, count)?;
    let mut v = on.read("moment2", v0, count)?;
    for (part, decays) in on.decayed(count)? {
        let (w, g) = (&mut weights[part.clone()], &gradients[part.clone()]);
        let moments = [&mut m[part.clone()], &mut v[part]];
        adamw_forward(w, g, moments, &options, &decision, decays);
    }
    on.write("weights", weight0, &weights)?;
    on.write_state("moment1", m0, &m)?;
    on.write_state("moment2", v0, &v)
}

/// Some gradients are so small that epsilon is a part, or most, of the denominator.
fn runs(lane: &Lane) -> Vec<Problem> {
    let problem = |(count, decay_end, update)| {
        let weights = lane.normal(count);
        let sizes = || [1.0f32, 1e-8, 1e-10].into_iter().cycle();
        let sized = |size: fn(f32, f32) -> f32| -> Vec<f32> {
            lane.normal(count).into_iter().zip(sizes()).map(|(x, s)| size(x, s)).collect()
        };
        let [gradients, moment1] = [(); 2].map(|()| sized(|x, size| size * x));
        let moment2 = sized(|x, size| size * size * x.abs());
        let mut operands: Vec<_> =
            [&weights, &gradients, &moment1, &moment2].map(|x| Operand::floats(x)).into();
        operands.extend(decided(update, &step_of(&RULE)));
        operands.push(Operand::range(0, 1, 0, decay_end));
        Problem::new([count, 0, 0], operands)
    };
    RUNS.map(problem).into()
}

fn placed_runs(lane: &Lane) -> Vec<Problem> {
    let problem = |(count, decay_end, update)| {
        let [weight0, gradient0, m0, v0] = [37, 11, 64, 21];
        let [weights, gradients, moment1, moment2] =
            [weight0, gradient0, m0, v0].map(|first| lane.normal(first + count + BEHIND));
        let moment2: Vec<_> = moment2.into_iter().map(f32::abs).collect();
        let mut operands: Vec<_> =
            [&weights, &gradients, &moment1, &moment2].map(|x| Operand::floats(x)).into();
        operands.extend(decided(update, &step_of(&RULE)));
        operands.push(Operand::range(weight0, 0, gradient0, decay_end));
        operands.push(Operand::range(m0, 0, v0, 0));
        Problem::new([count, 0, 0], operands)
    };
    RUNS.map(problem).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::optimizer::twin::{grad_norm_forward, step_decision_forward};
    use crate::optim::{Numbers, Optimizer};
    use crate::twins::check::assert_close;

    fn options() -> StepOptions<f64> {
        let given = StepOptions {
            learning_rate: 0.1,
            weight_decay: 0.1,
            max_grad_norm: 1.0,
            gradient_scale: 1.0,
            carried: [0.9, 0.95, 1.0 - 0.9, 1.0 - 0.95],
            numbers: [[0.0; 2]; 6],
        };
        given.with(&Optimizer::new(&RULE, &Numbers::default()))
    }

    fn step(
        weights: &mut [f64],
        gradients: &[f64],
        (state, carried): &mut ([Vec<f64>; 2], [f64; 2]),
    ) -> Decision<f64> {
        let squares = [grad_norm_forward(gradients, 1.0)];
        let decision = step_decision_forward(&squares, 1.0, &options(), *carried);
        *carried = decision.carried;
        let [m, v] = state;
        adamw_forward(weights, gradients, [m, v], &options(), &decision, true);
        decision
    }

    #[test]
    fn the_first_update_is_the_learning_rate_against_the_sign() {
        let mut weights = vec![1.0, -2.0, 3.0];
        let mut state = ([vec![0.0; 3], vec![0.0; 3]], [0.0; 2]);
        let decision = step(&mut weights, &[0.3, -0.4, 0.0], &mut state);
        assert_close("norm", &[decision.norm, decision.factor], &[0.5, 1.0], 1e-12, 0.0);
        assert_close("weights", &weights, &[0.99 - 0.1, -1.98 + 0.1, 2.97], 1e-7, 0.0);
        assert_close("correction", &state.1, &[0.1, 0.05], 1e-15, 0.0);
    }

    #[test]
    fn two_updates_follow_the_textbook() {
        let mut weights = vec![0.5];
        let mut state = ([vec![0.0], vec![0.0]], [0.0; 2]);
        let (mut w, mut m, mut v) = (0.5f64, 0.0f64, 0.0f64);
        for (n, g) in [(1, 0.2f64), (2, -3.0)] {
            step(&mut weights, &[g], &mut state);
            let g = g * (1.0 / (g.abs() + 1e-6)).min(1.0);
            (m, v) = (0.9 * m + 0.1 * g, 0.95 * v + 0.05 * g * g);
            let (m_hat, v_hat) = (m / (1.0 - 0.9f64.powi(n)), v / (1.0 - 0.95f64.powi(n)));
            w -= 0.1 * 0.1 * w + 0.1 * m_hat / (v_hat.sqrt() + 1e-8);
        }
        assert_close("weight", &weights, &[w], 1e-14, 0.0);
    }

    #[test]
    fn a_step_that_is_not_finite_changes_nothing() {
        for (gradient, loss) in
            [(f64::NAN, 1.0), (f64::INFINITY, 1.0), (1.0, f64::NAN), (1e200, 1.0)]
        {
            let squares = [grad_norm_forward(&[gradient], 1.0)];
            let decision = step_decision_forward(&squares, loss, &options(), [0.1, 0.05]);
            let (mut w, mut m, mut v) = ([1.0], [2.0], [3.0]);
            let moments = [&mut m[..], &mut v];
            adamw_forward(&mut w, &[gradient], moments, &options(), &decision, true);
            assert_eq!((w, m, v, decision.update), ([1.0], [2.0], [3.0], false));
            assert_eq!(decision.carried, [0.1, 0.05]);
        }
    }

    #[test]
    fn norms_are_not_decayed() {
        let decision = step_decision_forward(&[0.0], 1.0, &options(), [0.0; 2]);
        let (mut w, mut m, mut v) = ([1.0], [0.0], [0.0]);
        adamw_forward(&mut w, &[0.0], [&mut m, &mut v], &options(), &decision, false);
        assert_eq!(w, [1.0]);
    }
}
