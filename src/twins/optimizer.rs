//! Twins of family 12: global gradient norm, the decision about the step, the optimizers' updates.

use super::{Real, dot};

/// Σ (gradient · scale)² over one buffer: the first stage of the global norm.
pub fn grad_norm_forward<R: Real>(gradients: &[R], scale: R) -> R {
    dot(gradients, gradients) * scale * scale
}

/// What changes from step to step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptimizerOptions<R> {
    pub learning_rate: R,
    pub beta1: R,
    pub beta2: R,
    pub epsilon: R,
    pub weight_decay: R,
    pub max_grad_norm: R,
    /// Turns accumulated gradient sums into means.
    pub gradient_scale: R,
}

/// Carried from step to step: 1 − βⁿ after n updates.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BiasCorrection<R> {
    pub first: R,
    pub second: R,
}

/// Second stage of the norm: what the optimizer does with this step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision<R> {
    pub norm: R,
    /// False when norm or loss is not finite: weights, moments and corrections stay as they are.
    pub update: bool,
    /// Scale and clipping (as torch's `clip_grad_norm_`) in one factor on every gradient.
    pub factor: R,
}

/// Decides about a step from the partial sums of squares and the loss; advances the corrections
/// when the step updates.
pub fn step_decision_forward<R: Real>(
    squares: &[R],
    loss: R,
    options: &OptimizerOptions<R>,
    correction: &mut BiasCorrection<R>,
) -> Decision<R> {
    let norm = squares.iter().copied().sum::<R>().sqrt();
    let update = norm.is_finite() && loss.is_finite();
    if update {
        correction.first = correction.first * options.beta1 + (R::ONE - options.beta1);
        correction.second = correction.second * options.beta2 + (R::ONE - options.beta2);
    }
    let clip = R::ONE.min(options.max_grad_norm / (norm + R::from_f64(1e-6)));
    Decision { norm, update, factor: if update { clip * options.gradient_scale } else { R::ZERO } }
}

/// One AdamW update in place, decoupled decay (Loshchilov and Hutter, arXiv:1711.05101) only where
/// `decay` says so.
#[expect(clippy::too_many_arguments, reason = "the kernel's bindings")]
pub fn adamw_forward<R: Real>(
    weights: &mut [R],
    gradients: &[R],
    moment1: &mut [R],
    moment2: &mut [R],
    options: &OptimizerOptions<R>,
    correction: BiasCorrection<R>,
    decision: Decision<R>,
    decay: bool,
) {
    if !decision.update {
        return;
    }
    let decay = if decay { options.learning_rate * options.weight_decay } else { R::ZERO };
    for (i, w) in weights.iter_mut().enumerate() {
        let gradient = gradients[i] * decision.factor;
        let m = options.beta1 * moment1[i] + (R::ONE - options.beta1) * gradient;
        let v = options.beta2 * moment2[i] + (R::ONE - options.beta2) * gradient * gradient;
        (moment1[i], moment2[i]) = (m, v);
        let denominator = (v / correction.second).sqrt() + options.epsilon;
        *w = *w - decay * *w - options.learning_rate * (m / correction.first) / denominator;
    }
}

/// One update by gradient descent in place, as `torch.optim.SGD`: `beta1` is the momentum, and the decay,
/// where `decay` says so, is part of the gradient. Without a velocity the gradient is one.
pub fn sgd_forward<R: Real>(
    weights: &mut [R],
    gradients: &[R],
    mut velocity: Option<&mut [R]>,
    options: &OptimizerOptions<R>,
    decision: Decision<R>,
    decay: bool,
) {
    if !decision.update {
        return;
    }
    let decay = if decay { options.weight_decay } else { R::ZERO };
    for (i, w) in weights.iter_mut().enumerate() {
        let mut step = gradients[i] * decision.factor + decay * *w;
        if let Some(velocity) = &mut velocity {
            velocity[i] = options.beta1 * velocity[i] + step;
            step = velocity[i];
        }
        *w = *w - options.learning_rate * step;
    }
}

/// One Lion update in place (Chen et al., arXiv:2302.06675), decoupled decay only where `decay` says so.
pub fn lion_forward<R: Real>(
    weights: &mut [R],
    gradients: &[R],
    moment: &mut [R],
    options: &OptimizerOptions<R>,
    decision: Decision<R>,
    decay: bool,
) {
    if !decision.update {
        return;
    }
    let decay = if decay { options.learning_rate * options.weight_decay } else { R::ZERO };
    for (i, w) in weights.iter_mut().enumerate() {
        let (gradient, m) = (gradients[i] * decision.factor, moment[i]);
        let mean = options.beta1 * m + (R::ONE - options.beta1) * gradient;
        moment[i] = options.beta2 * m + (R::ONE - options.beta2) * gradient;
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

/// One step of an exponential moving average, in place: `share` of it becomes the weights. Without `update` nothing
/// changes.
pub fn average_forward<R: Real>(weights: &[R], averages: &mut [R], share: R, update: bool) {
    if !update {
        return;
    }
    for (average, &weight) in averages.iter_mut().zip(weights) {
        *average = *average + share * (weight - *average);
    }
}

/// The values of the 8-bit codes in ascending order (Dettmers et al., arXiv:2110.02861). There are seven decades.
/// Each is cut into twice as many equal parts as the decade below it, and the middle of each part is a value. 0 and 1
/// are values too. With `signed` so are the negatives of the middles.
pub fn dynamic_map<R: Real>(signed: bool) -> Vec<R> {
    let mut values = vec![0.0, 1.0];
    for decade in 0..7 {
        let parts = 1 << if signed { decade } else { decade + 1 };
        let scale = [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0][decade as usize];
        for part in 0..parts {
            let value = scale * (0.1 + 0.9 * (f64::from(part) + 0.5) / f64::from(parts));
            values.push(value);
            if signed {
                values.push(-value);
            }
        }
    }
    values.sort_by(f64::total_cmp);
    values.into_iter().map(R::from_f64).collect()
}

/// The code nearest to a value within the map's bounds, the upper one of two as near.
pub fn dynamic_code<R: Real>(map: &[R], x: R) -> u8 {
    let below = map.iter().rposition(|&value| value <= x).unwrap_or(0);
    let above = (below + 1).min(255);
    let half = (map[above] - map[below]) * R::from_f64(0.5);
    (if x - map[below] >= half { above } else { below }) as u8
}

/// Updates whole blocks of 256 elements by AdamW. The moments are codes of [`dynamic_map`]: the first signed, the
/// second unsigned, each with one scale per block. The step uses the moments before they become codes, as torchao's
/// AdamW8bit does. The first `decayed` elements are decayed.
#[expect(clippy::too_many_arguments, reason = "the kernel's bindings")]
pub fn adamw8bit_forward<R: Real>(
    weights: &mut [R],
    gradients: &[R],
    [codes1, codes2]: [&mut [u8]; 2],
    scales: &mut [R],
    options: &OptimizerOptions<R>,
    correction: BiasCorrection<R>,
    decision: Decision<R>,
    decayed: usize,
) {
    let maps = [dynamic_map::<R>(true), dynamic_map::<R>(false)];
    let least = R::from_f64(1e-12);
    for (block, first) in (0..weights.len()).step_by(256).enumerate() {
        let part = first..first + 256;
        let old = |codes: &[u8], map: &[R], scale: R| -> Vec<R> {
            codes[part.clone()].iter().map(|&code| map[usize::from(code)] * scale).collect()
        };
        let mut m = old(codes1, &maps[0], scales[2 * block]);
        let mut v = old(codes2, &maps[1], scales[2 * block + 1]);
        for (i, element) in part.clone().enumerate() {
            let (w, g) = (element..element + 1, &gradients[element..=element]);
            let (m, v) = (&mut m[i..=i], &mut v[i..=i]);
            let decay = element < decayed;
            adamw_forward(&mut weights[w], g, m, v, options, correction, decision, decay);
        }
        if !decision.update {
            continue;
        }
        let largest = |x: &[R]| x.iter().fold(least, |most, &x| most.max(x.max(-x)));
        let new = [largest(&m), largest(&v)];
        scales[2 * block..][..2].copy_from_slice(&new);
        for (i, element) in part.enumerate() {
            codes1[element] = dynamic_code(&maps[0], m[i] / new[0]);
            codes2[element] = dynamic_code(&maps[1], v[i] / new[1]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::twins::check::assert_close;

    const OPTIONS: OptimizerOptions<f64> = OptimizerOptions {
        learning_rate: 0.1,
        beta1: 0.9,
        beta2: 0.95,
        epsilon: 1e-8,
        weight_decay: 0.1,
        max_grad_norm: 1.0,
        gradient_scale: 1.0,
    };

    fn step(
        weights: &mut [f64],
        gradients: &[f64],
        state: &mut ([Vec<f64>; 2], BiasCorrection<f64>),
    ) -> Decision<f64> {
        let squares = [grad_norm_forward(gradients, OPTIONS.gradient_scale)];
        let decision = step_decision_forward(&squares, 1.0, &OPTIONS, &mut state.1);
        let [m, v] = &mut state.0;
        adamw_forward(weights, gradients, m, v, &OPTIONS, state.1, decision, true);
        decision
    }

    #[test]
    fn the_first_update_is_the_learning_rate_against_the_sign() {
        let mut weights = vec![1.0, -2.0, 3.0];
        let mut state = ([vec![0.0; 3], vec![0.0; 3]], BiasCorrection::default());
        let decision = step(&mut weights, &[0.3, -0.4, 0.0], &mut state);
        assert_close("norm", &[decision.norm, decision.factor], &[0.5, 1.0], 1e-12, 0.0);
        assert_close("weights", &weights, &[0.99 - 0.1, -1.98 + 0.1, 2.97], 1e-7, 0.0);
        let correction = state.1;
        assert_close(
            "correction",
            &[correction.first, correction.second],
            &[0.1, 0.05],
            1e-15,
            0.0,
        );
    }

    #[test]
    fn two_updates_follow_the_textbook() {
        let mut weights = vec![0.5];
        let mut state = ([vec![0.0], vec![0.0]], BiasCorrection::default());
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

    const DECIDED: Decision<f64> = Decision { norm: 1.0, update: true, factor: 0.5 };

    #[test]
    fn descent_with_momentum_follows_the_textbook() {
        let (mut weights, mut velocity) = (vec![0.5], vec![0.0]);
        let (mut w, mut v) = (0.5f64, 0.0f64);
        for g in [0.2f64, -3.0, 1.0] {
            sgd_forward(&mut weights, &[g], Some(&mut velocity), &OPTIONS, DECIDED, true);
            v = 0.9 * v + 0.5 * g + 0.1 * w;
            w -= 0.1 * v;
        }
        assert_close("weight and velocity", &[weights[0], velocity[0]], &[w, v], 1e-15, 0.0);
        // Without a velocity, and without decay.
        let mut weights = vec![0.5];
        sgd_forward(&mut weights, &[2.0], None, &OPTIONS, DECIDED, false);
        assert_close("weight", &weights, &[0.4], 1e-15, 0.0);
        let still = Decision { update: false, ..DECIDED };
        sgd_forward(&mut weights, &[f64::NAN], Some(&mut velocity), &OPTIONS, still, true);
        assert_close("weight", &weights, &[0.4], 1e-15, 0.0);
        assert!((velocity[0] - v).abs() < 1e-15);
    }

    /// As bitsandbytes' create_dynamic_map and torchao's give them.
    #[test]
    fn the_maps_are_the_papers() {
        let (signed, unsigned) = (dynamic_map::<f64>(true), dynamic_map::<f64>(false));
        assert_eq!((signed.len(), unsigned.len()), (256, 256));
        assert_eq!((signed[127], signed[255], unsigned[0], unsigned[255]), (0.0, 1.0, 0.0, 1.0));
        assert_close("ends", &[signed[0], signed[254]], &[-0.992_968_75, 0.992_968_75], 1e-12, 0.0);
        assert_close("small", &[signed[128], unsigned[1]], &[5.5e-7, 3.25e-7], 1e-18, 0.0);
        assert!(signed.is_sorted() && unsigned.is_sorted());
        for (code, &value) in signed.iter().enumerate() {
            assert_eq!(usize::from(dynamic_code(&signed, value)), code);
        }
        assert_eq!(dynamic_code(&signed, -1.0), 0);
        assert_eq!(dynamic_code(&unsigned, 2e-7), 1);
        assert_eq!(dynamic_code(&unsigned, 1e-7), 0);
    }

    #[test]
    fn lion_steps_by_the_sign_of_the_mean() {
        let (mut weights, mut moment) = (vec![0.5, 0.5, 0.5], vec![1.0, 0.0, 0.0]);
        lion_forward(&mut weights, &[-1.0, -1.0, 0.0], &mut moment, &OPTIONS, DECIDED, true);
        // 0.9 · 1 − 0.1 · 0.5 is above 0, −0.05 below.
        assert_close("weights", &weights, &[0.495 - 0.1, 0.495 + 0.1, 0.495], 1e-15, 0.0);
        assert_close("moment", &moment, &[0.95 - 0.025, -0.025, 0.0], 1e-15, 0.0);
        let before = (weights.clone(), moment.clone());
        let still = Decision { update: false, ..DECIDED };
        lion_forward(&mut weights, &[f64::NAN; 3], &mut moment, &OPTIONS, still, true);
        assert_eq!((weights, moment), before);
    }

    #[test]
    fn clipping_bounds_the_norm_and_the_scale_counts_first() {
        let mut correction = BiasCorrection::default();
        let options = OptimizerOptions { gradient_scale: 0.5, ..OPTIONS };
        let squares = [grad_norm_forward(&[6.0, 8.0], 0.5)];
        let decision = step_decision_forward(&squares, 1.0, &options, &mut correction);
        assert_close("decision", &[decision.norm, decision.factor], &[5.0, 0.1], 1e-6, 0.0);
    }

    #[test]
    fn a_step_that_is_not_finite_changes_nothing() {
        for (gradient, loss) in
            [(f64::NAN, 1.0), (f64::INFINITY, 1.0), (1.0, f64::NAN), (1e200, 1.0)]
        {
            let mut correction = BiasCorrection { first: 0.1, second: 0.05 };
            let squares = [grad_norm_forward(&[gradient], 1.0)];
            let decision = step_decision_forward(&squares, loss, &OPTIONS, &mut correction);
            let (mut w, mut m, mut v) = ([1.0], [2.0], [3.0]);
            adamw_forward(
                &mut w,
                &[gradient],
                &mut m,
                &mut v,
                &OPTIONS,
                correction,
                decision,
                true,
            );
            assert_eq!((w, m, v, decision.update), ([1.0], [2.0], [3.0], false));
            assert_eq!(correction, BiasCorrection { first: 0.1, second: 0.05 });
        }
    }

    #[test]
    fn norms_are_not_decayed() {
        let mut correction = BiasCorrection::default();
        let decision = step_decision_forward(&[0.0], 1.0, &OPTIONS, &mut correction);
        let (mut w, mut m, mut v) = ([1.0], [0.0], [0.0]);
        adamw_forward(&mut w, &[0.0], &mut m, &mut v, &OPTIONS, correction, decision, false);
        assert_eq!(w, [1.0]);
    }
}
