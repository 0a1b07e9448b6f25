//! The global norm and AdamW.

use super::operands::Operands;
use super::uniforms::Step;
use crate::error::Result;
use crate::kernels::GRAD_NORM_GROUPS;
use crate::twins::optimizer::{
    BiasCorrection, Decision, OptimizerOptions, adamw_forward, grad_norm_forward,
    step_decision_forward,
};

fn options(step: &Step) -> OptimizerOptions<f32> {
    OptimizerOptions {
        learning_rate: step.learning_rate,
        beta1: step.beta1,
        beta2: step.beta2,
        epsilon: step.epsilon,
        weight_decay: step.weight_decay,
        max_grad_norm: step.max_grad_norm,
        gradient_scale: step.gradient_scale,
    }
}

pub(super) fn grad_norm(on: &mut Operands) -> Result<()> {
    let (gradients, scale) = (on.f32("gradients")?, on.step()?.gradient_scale);
    let each = gradients.len().div_ceil(GRAD_NORM_GROUPS);
    let mut squares: Vec<f32> =
        gradients.chunks(each).map(|part| grad_norm_forward(part, scale)).collect();
    squares.resize(GRAD_NORM_GROUPS, 0.0);
    on.write("squares", 0, &squares)
}

pub(super) fn step_decision(on: &mut Operands, partials: usize) -> Result<()> {
    let step = on.step()?;
    let state = on.f32("optimizer")?;
    let mut correction = BiasCorrection { first: state[0], second: state[1] };
    let (squares, loss) = (on.first("squares", partials)?, on.f32("metrics")?[2]);
    let decision = step_decision_forward(squares, loss, &options(&step), &mut correction);
    let Decision { norm, update, factor } = decision;
    on.write("metrics", 4, &[norm, f32::from(u8::from(!update))])?;
    let updated = f32::from(u8::from(update));
    on.write("optimizer", 0, &[correction.first, correction.second, factor, updated])
}

pub(super) fn adamw(on: &mut Operands, count: usize) -> Result<()> {
    let (step, decayed) = (on.step()?, on.range()?.cols as usize);
    let state = on.f32("optimizer")?;
    let correction = BiasCorrection { first: state[0], second: state[1] };
    let decision = Decision { norm: 0.0, update: state[3] != 0.0, factor: state[2] };
    let mut sets = ["weights", "gradients", "moment1", "moment2"]
        .map(|name| on.first(name, count).map(<[f32]>::to_vec));
    let [weights, gradients, moment1, moment2] = &mut sets;
    let (Ok(weights), Ok(gradients), Ok(moment1), Ok(moment2)) =
        (weights, gradients, moment1, moment2)
    else {
        let failed = sets.into_iter().find_map(Result::err);
        return Err(failed.expect("one of them failed"));
    };
    for (range, decay) in [(0..decayed, true), (decayed..count, false)] {
        adamw_forward(
            &mut weights[range.clone()],
            &gradients[range.clone()],
            &mut moment1[range.clone()],
            &mut moment2[range],
            &options(&step),
            correction,
            decision,
            decay,
        );
    }
    on.write("weights", 0, weights)?;
    on.write("moment1", 0, moment1)?;
    on.write("moment2", 0, moment2)
}
