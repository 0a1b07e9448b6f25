//! The global norm, AdamW, and the drawing of tokens.

use super::operands::Operands;
use super::uniforms::{Sampling, Step};
use crate::error::Result;
use crate::kernels::GRAD_NORM_GROUPS;
use crate::random::{philox, uniform};
use crate::twins::optimizer::{
    BiasCorrection, Decision, OptimizerOptions, adamw_forward, grad_norm_forward,
    step_decision_forward,
};
use crate::twins::sampling::{SamplingOptions, sample_forward};

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

/// Keeps the draws apart from other streams of a seed (`13_sample.wgsl`).
const DRAWS: u32 = 0x7361_6d70;

pub(super) fn sample(on: &mut Operands, vocabulary: usize) -> Result<()> {
    let options: Sampling = on.uniform("options")?;
    let mut step = on.step()?;
    let logits = on.first("logits", vocabulary)?;
    let seen = on.u32("seen")?;
    let in_text = |token: &u32| seen[*token as usize / 32] >> (token % 32) & 1 == 1;
    let history: Vec<u32> = (0..vocabulary as u32).filter(in_text).collect();
    let chosen = SamplingOptions {
        temperature: f64::from(options.temperature),
        top_k: options.top_k as usize,
        top_p: f64::from(options.top_p),
        min_p: f64::from(options.min_p),
        repetition_penalty: f64::from(options.repetition_penalty),
    };
    let share = uniform(philox([step.draws, 0, 0, DRAWS], options.seed)[0]);
    let (token, probability) = sample_forward(logits, &history, &chosen, share);
    let turn = 2 * (step.draws - options.turn0) as usize;
    on.u32_mut("drawn")?[turn..turn + 2].copy_from_slice(&[token, probability.to_bits()]);
    on.u32_mut("token")?[0] = token;
    on.u32_mut("seen")?[token as usize / 32] |= 1 << (token % 32);
    step.position += 1;
    step.draws += 1;
    let words = bytemuck::cast_slice(bytemuck::bytes_of(&step));
    on.u32_mut("step")?[..words.len()].copy_from_slice(words);
    Ok(())
}
