//! The global norm and the updates.

use super::operands::Operands;
use super::uniforms::Step;
use crate::error::Result;
use crate::kernels::{GRAD_NORM_GROUPS, muon_parts};
use crate::twins::muon::{
    muon_forward, muon_polynomial_forward, muon_scale_forward, muon_update_forward,
};
use crate::twins::optimizer::{
    BiasCorrection, Decision, OptimizerOptions, adamw_forward, adamw8bit_forward, average_forward,
    grad_norm_forward, lion_forward, sgd_forward, step_decision_forward,
};
use std::ops::Range;

fn options(step: &Step) -> OptimizerOptions<f32> {
    OptimizerOptions {
        learning_rate: step.learning_rate,
        beta1: step.numbers[0][0],
        beta2: step.numbers[1][0],
        epsilon: step.numbers[2][0],
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
    let before = correction;
    let [beta1, beta2, ..] = step.carried;
    let options = OptimizerOptions { beta1, beta2, ..options(&step) };
    let decision = step_decision_forward(squares, loss, &options, &mut correction);
    if step.still != 0 {
        correction = before;
    }
    let Decision { norm, update, factor } = decision;
    on.write("metrics", 4, &[norm, f32::from(u8::from(!update))])?;
    let updated = f32::from(u8::from(update));
    on.write("optimizer", 0, &[correction.first, correction.second, factor, updated])
}

/// What the last decision left.
fn decided(on: &Operands) -> Result<(BiasCorrection<f32>, Decision<f32>)> {
    let state = on.f32("optimizer")?;
    let correction = BiasCorrection { first: state[0], second: state[1] };
    Ok((correction, Decision { norm: 0.0, update: state[3] != 0.0, factor: state[2] }))
}

/// The first `count` numbers of each set.
fn sets<const N: usize>(on: &Operands, names: [&str; N], count: usize) -> Result<[Vec<f32>; N]> {
    let mut sets = [const { vec![] }; N];
    for (set, name) in sets.iter_mut().zip(names) {
        *set = on.first(name, count)?.to_vec();
    }
    Ok(sets)
}

/// The elements that are decayed, and those that are not.
fn parts(on: &Operands, count: usize) -> Result<[(Range<usize>, bool); 2]> {
    let decayed = on.range()?.cols as usize;
    Ok([(0..decayed, true), (decayed..count, false)])
}

pub(super) fn adamw(on: &mut Operands, count: usize) -> Result<()> {
    let (step, (correction, decision)) = (on.step()?, decided(on)?);
    let names = ["weights", "gradients", "moment1", "moment2"];
    let [mut weights, gradients, mut moment1, mut moment2] = sets(on, names, count)?;
    for (range, decay) in parts(on, count)? {
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
    on.write("weights", 0, &weights)?;
    if step.still != 0 {
        return Ok(());
    }
    on.write("moment1", 0, &moment1)?;
    on.write("moment2", 0, &moment2)
}

pub(super) fn sgd(on: &mut Operands, count: usize, momentum: bool) -> Result<()> {
    let (step, (_, decision)) = (on.step()?, decided(on)?);
    let options = options(&step);
    let [mut weights, gradients] = sets(on, ["weights", "gradients"], count)?;
    let mut velocity =
        momentum.then(|| on.first("moment1", count).map(<[f32]>::to_vec)).transpose()?;
    for (range, decay) in parts(on, count)? {
        let velocity = velocity.as_mut().map(|velocity| &mut velocity[range.clone()]);
        let (weights, gradients) = (&mut weights[range.clone()], &gradients[range]);
        sgd_forward(weights, gradients, velocity, &options, decision, decay);
    }
    on.write("weights", 0, &weights)?;
    let velocity = velocity.filter(|_| step.still == 0);
    velocity.map_or(Ok(()), |velocity| on.write("moment1", 0, &velocity))
}

pub(super) fn lion(on: &mut Operands, count: usize) -> Result<()> {
    let (step, (_, decision)) = (on.step()?, decided(on)?);
    let options = options(&step);
    let [mut weights, gradients, mut moment] =
        sets(on, ["weights", "gradients", "moment1"], count)?;
    for (range, decay) in parts(on, count)? {
        let (weights, moment) = (&mut weights[range.clone()], &mut moment[range.clone()]);
        lion_forward(weights, &gradients[range], moment, &options, decision, decay);
    }
    on.write("weights", 0, &weights)?;
    if step.still == 0 { on.write("moment1", 0, &moment) } else { Ok(()) }
}

/// What a range says of a run: its first weight and its first gradient, and how many are decayed.
fn placed(on: &Operands, count: usize) -> Result<[Range<usize>; 2]> {
    let range = on.range()?;
    let from = |first: u32| first as usize..first as usize + count;
    Ok([from(range.row0), from(range.col0)])
}

pub(super) fn adamw8bit(on: &mut Operands, count: usize) -> Result<()> {
    let (step, (correction, decision)) = (on.step()?, decided(on)?);
    let ([own, gradients], place) =
        (placed(on, count)?, on.uniform::<crate::plan::Range>("place")?);
    let decayed = on.range()?.cols as usize;
    let words = [place.row0, place.col0].map(|word| word as usize);
    let scale = 2 * place.rows as usize;
    let mut weights = on.f32("weights")?[own.clone()].to_vec();
    let gradients = on.f32("gradients")?[gradients].to_vec();
    let codes = |name, word: usize| -> Result<Vec<u8>> {
        Ok(bytemuck::cast_slice(&on.u32(name)?[word..][..count / 4]).to_vec())
    };
    let (mut codes1, mut codes2) = (codes("moment1", words[0])?, codes("moment2", words[1])?);
    let mut scales = on.f32("scales")?[scale..][..count / 128].to_vec();
    let both = [&mut codes1[..], &mut codes2[..]];
    let options = options(&step);
    adamw8bit_forward(
        &mut weights,
        &gradients,
        both,
        &mut scales,
        &options,
        correction,
        decision,
        decayed,
    );
    on.write("weights", own.start, &weights)?;
    if step.still != 0 {
        return Ok(());
    }
    for (name, word, codes) in [("moment1", words[0], codes1), ("moment2", words[1], codes2)] {
        let codes: Vec<u32> = bytemuck::pod_collect_to_vec(&codes);
        on.u32_mut(name)?[word..][..count / 4].copy_from_slice(&codes);
    }
    on.write("scales", scale, &scales)
}

pub(super) fn adamw_placed(on: &mut Operands, count: usize) -> Result<()> {
    let (step, (correction, decision)) = (on.step()?, decided(on)?);
    let ([own, gradients], place) =
        (placed(on, count)?, on.uniform::<crate::plan::Range>("place")?);
    let at = [place.row0, place.col0].map(|first| first as usize);
    let mut weights = on.f32("weights")?[own.clone()].to_vec();
    let gradients = on.f32("gradients")?[gradients].to_vec();
    let mut m = on.f32("moment1")?[at[0]..][..count].to_vec();
    let mut v = on.f32("moment2")?[at[1]..][..count].to_vec();
    for (range, decay) in parts(on, count)? {
        let (weights, gradients) = (&mut weights[range.clone()], &gradients[range.clone()]);
        let (m, v) = (&mut m[range.clone()], &mut v[range]);
        adamw_forward(weights, gradients, m, v, &options(&step), correction, decision, decay);
    }
    on.write("weights", own.start, &weights)?;
    if step.still != 0 {
        return Ok(());
    }
    on.write("moment1", at[0], &m)?;
    on.write("moment2", at[1], &v)
}

pub(super) fn average(on: &mut Operands, count: usize, share: f64) -> Result<()> {
    let (step, (_, decision)) = (on.step()?, decided(on)?);
    let [weights, mut averages] = sets(on, ["weights", "averages"], count)?;
    if step.position == 2 {
        on.write("weights", 0, &averages)?;
    }
    if step.position != 0 {
        return on.write("averages", 0, &weights);
    }
    let update = decision.update && step.still == 0;
    average_forward(&weights, &mut averages, share as f32, update);
    on.write("averages", 0, &averages)
}

pub(super) fn muon(on: &mut Operands, count: usize) -> Result<()> {
    let (step, (_, decision)) = (on.step()?, decided(on)?);
    let (range, place) = (on.range()?, on.uniform::<crate::plan::Range>("place")?);
    let [gradient0, moment0, first, part] =
        [range.row0, range.col0, place.row0, place.col0].map(|at| at as usize);
    let gradients = on.f32("gradients")?[gradient0..][..count].to_vec();
    let mut moment = on.f32("moment1")?[moment0..][..count].to_vec();
    let kept = moment.clone();
    let found = muon_forward(&gradients, &mut moment, step.numbers[3][0], decision);
    let Some(direction) = found else { return Ok(()) };
    if step.still != 0 {
        moment = kept;
    }
    let parts = muon_parts(count);
    let mut squares: Vec<f32> =
        direction.chunks(count.div_ceil(parts)).map(|part| grad_norm_forward(part, 1.0)).collect();
    squares.resize(parts, 0.0);
    on.write("moment1", moment0, &moment)?;
    on.write("direction", first, &direction)?;
    on.write("squares", part, &squares)
}

pub(super) fn muon_scale(on: &mut Operands, count: usize, parts: usize) -> Result<()> {
    let squares: f32 = on.first("squares", parts)?.iter().sum();
    let mut direction = on.first("direction", count)?.to_vec();
    muon_scale_forward(&mut direction, squares);
    on.write("direction", 0, &direction)
}

pub(super) fn muon_polynomial(on: &mut Operands, side: usize) -> Result<()> {
    let mut square = on.first("square", side * side)?.to_vec();
    muon_polynomial_forward(on.first("gram", side * side)?, &mut square, side);
    on.write("square", 0, &square)
}

pub(super) fn muon_update(on: &mut Operands, count: usize, rate: f64) -> Result<()> {
    let (options, (_, decision)) = (options(&on.step()?), decided(on)?);
    let ([own, along], decay) = (placed(on, count)?, on.range()?.cols != 0);
    let mut weights = on.f32("weights")?[own.clone()].to_vec();
    let direction = &on.f32("direction")?[along];
    muon_update_forward(&mut weights, direction, rate as f32, &options, decision, decay);
    on.write("weights", own.start, &weights)
}
