//! Twins of family 12 that no rule has for itself: global gradient norm, the decision about the step, the average.

pub(crate) mod update;

use super::{Average, GRAD_NORM_GROUPS, GradNorm, StepDecision, UpdateSpec};
use crate::error::Result;
use crate::kernels::shape::Constant;
use crate::optim::Optimizer;
use crate::plan::{MOST_NUMBERS, Step};
use crate::twins::{Operands, Real, Twin, dot};
use update::{Cpu, Written};

/// Σ (gradient · scale)² over one buffer: the first stage of the global norm.
pub fn grad_norm_forward<R: Real>(gradients: &[R], scale: R) -> R {
    dot(gradients, gradients) * scale * scale
}

/// What changes from step to step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepOptions<R> {
    pub learning_rate: R,
    pub weight_decay: R,
    pub max_grad_norm: R,
    /// Turns accumulated gradient sums into means.
    pub gradient_scale: R,
    /// Factors of what is carried, and what is then added.
    pub carried: [R; 4],
    /// The rule's numbers, each with 1 less it.
    pub numbers: [[R; 2]; MOST_NUMBERS],
}

impl<R: Real> StepOptions<R> {
    /// As a kernel has them.
    pub fn of(step: &Step) -> Self {
        let real = |x: f32| R::from_f64(f64::from(x));
        Self {
            learning_rate: real(step.learning_rate),
            weight_decay: real(step.weight_decay),
            max_grad_norm: real(step.max_grad_norm),
            gradient_scale: real(step.gradient_scale),
            carried: step.carried.map(real),
            numbers: step.numbers.map(|[x, rest, ..]| [x, rest].map(real)),
        }
    }

    /// These options with an optimizer's numbers.
    pub fn with(mut self, optimizer: &Optimizer) -> Self {
        for (own, (_, number)) in self.numbers.iter_mut().zip(optimizer.numbers()) {
            *own = [number, 1.0 - number].map(R::from_f64);
        }
        self
    }

    /// What a decoupled decay takes of a weight.
    pub fn decay(&self, decays: bool) -> R {
        if decays { self.learning_rate * self.weight_decay } else { R::ZERO }
    }
}

/// Second stage of the norm: what the optimizer does with this step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision<R> {
    pub norm: R,
    /// False when norm or loss is not finite: weights, state and what is carried stay as they are.
    pub update: bool,
    /// Scale and clipping (as torch's `clip_grad_norm_`) in one factor on every gradient.
    pub factor: R,
    /// What is carried, this update included.
    pub carried: [R; 2],
}

/// Decides about a step from the partial sums of squares, the loss, and what was carried so far.
pub fn step_decision_forward<R: Real>(
    squares: &[R],
    loss: R,
    options: &StepOptions<R>,
    mut carried: [R; 2],
) -> Decision<R> {
    let norm = squares.iter().copied().sum::<R>().sqrt();
    let update = norm.is_finite() && loss.is_finite();
    if update {
        let [factor1, factor2, term1, term2] = options.carried;
        carried = [carried[0] * factor1 + term1, carried[1] * factor2 + term2];
    }
    let clip = R::ONE.min(options.max_grad_norm / (norm + R::from_f64(1e-6)));
    let factor = if update { clip * options.gradient_scale } else { R::ZERO };
    Decision { norm, update, factor, carried }
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

impl Twin for GradNorm {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let (gradients, scale) = (on.f32("gradients")?, on.step()?.gradient_scale);
        let each = gradients.len().div_ceil(GRAD_NORM_GROUPS);
        let mut squares: Vec<f32> =
            gradients.chunks(each).map(|part| grad_norm_forward(part, scale)).collect();
        squares.resize(GRAD_NORM_GROUPS, 0.0);
        on.write("squares", 0, &squares)
    }
}

impl Twin for StepDecision {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Self { partials } = *self;
        let (step, state) = (on.step()?, on.f32("optimizer")?);
        let before = [state[0], state[1]];
        let (squares, loss) = (on.first("squares", partials)?, on.f32("metrics")?[2]);
        let decision = step_decision_forward(squares, loss, &StepOptions::of(&step), before);
        let Decision { norm, update, factor, carried } = decision;
        on.write("metrics", 4, &[norm, f32::from(u8::from(!update))])?;
        let [first, second] = if step.still == 0 { carried } else { before };
        on.write("optimizer", 0, &[first, second, factor, f32::from(u8::from(update))])
    }
}

impl Twin for UpdateSpec {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let mut cpu = Cpu::<f32>::new((*self, on.workgroup_size()), on.all_words());
        (self.kernel.tests.twin.f32)(&mut cpu)?;
        for bound in cpu.bound {
            for (at, written) in bound.written.into_iter().enumerate() {
                let word = match written {
                    None => continue,
                    Some(Written::Number(number)) => number.to_bits(),
                    Some(Written::Word(word)) => word,
                };
                on.u32_mut(bound.binding.name)?[at] = word;
            }
        }
        Ok(())
    }
}

impl Twin for Average {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Self { count, share: Constant(share) } = *self;
        let step = on.step()?;
        let updates = on.f32("optimizer")?[3] != 0.0 && step.still == 0;
        let weights = on.first("weights", count)?.to_vec();
        let mut averages = on.first("averages", count)?.to_vec();
        if step.position == 2 {
            on.write("weights", 0, &averages)?;
        }
        if step.position != 0 {
            return on.write("averages", 0, &weights);
        }
        average_forward(&weights, &mut averages, share as f32, updates);
        on.write("averages", 0, &averages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::twins::check::assert_close;

    #[test]
    fn clipping_bounds_the_norm_and_the_scale_counts_first() {
        let options = StepOptions {
            learning_rate: 0.1,
            weight_decay: 0.1,
            max_grad_norm: 1.0,
            gradient_scale: 0.5,
            carried: [0.9, 1.0, 0.1, 1.0],
            numbers: [[0.0; 2]; MOST_NUMBERS],
        };
        let squares = [grad_norm_forward(&[6.0, 8.0], 0.5)];
        let decision = step_decision_forward(&squares, 1.0, &options, [0.5, 3.0]);
        assert_close("decision", &[decision.norm, decision.factor], &[5.0, 0.1], 1e-6, 0.0);
        assert_close("carried", &decision.carried, &[0.55, 4.0], 1e-12, 0.0);
    }
}
