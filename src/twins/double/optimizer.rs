//! The global norm, the updates of all rules, the average.

use super::operands::Operands;
use crate::error::Result;
use crate::kernels::GRAD_NORM_GROUPS;
#[cfg(feature = "testing")]
use crate::kernels::UpdateSpec;
use crate::twins::optimizer::{
    Decision, StepOptions, average_forward, grad_norm_forward, step_decision_forward,
};

pub(super) fn grad_norm(on: &mut Operands) -> Result<()> {
    let (gradients, scale) = (on.f32("gradients")?, on.step()?.gradient_scale);
    let each = gradients.len().div_ceil(GRAD_NORM_GROUPS);
    let mut squares: Vec<f32> =
        gradients.chunks(each).map(|part| grad_norm_forward(part, scale)).collect();
    squares.resize(GRAD_NORM_GROUPS, 0.0);
    on.write("squares", 0, &squares)
}

pub(super) fn step_decision(on: &mut Operands, partials: usize) -> Result<()> {
    let (step, state) = (on.step()?, on.f32("optimizer")?);
    let before = [state[0], state[1]];
    let (squares, loss) = (on.first("squares", partials)?, on.f32("metrics")?[2]);
    let decision = step_decision_forward(squares, loss, &StepOptions::of(&step), before);
    let Decision { norm, update, factor, carried } = decision;
    on.write("metrics", 4, &[norm, f32::from(u8::from(!update))])?;
    let [first, second] = if step.still == 0 { carried } else { before };
    on.write("optimizer", 0, &[first, second, factor, f32::from(u8::from(update))])
}

/// A kernel of a rule, by its own twin.
#[cfg(feature = "testing")]
pub(super) fn update(on: &mut Operands, spec: UpdateSpec) -> Result<()> {
    use crate::twins::update::{Cpu, Written};
    let mut cpu = Cpu::<f32>::new((spec, on.workgroup_size()), on.all_words());
    (spec.kernel.tests.twin.f32)(&mut cpu)?;
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

pub(super) fn average(on: &mut Operands, count: usize, share: f64) -> Result<()> {
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
