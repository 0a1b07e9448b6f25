//! Family 12: the kernels of all rules, each held to its twin in f64.

use crate::kernels::optimizer::twin::update::{BoundWords, Cpu, UpdateTwin, Written};
use crate::kernels::{Access, Constant, Kernel, UpdateKernel, UpdateSpec};
use crate::optim::{Numbers, Optimizer, RULES, Rule};
use crate::testing::harness::{Job, Operand, Outputs, Step};
use crate::testing::lane::Lane;
use crate::testing::measure::{ROUNDING, close_to_terms, forbid, of, same, text};
use crate::testing::{Case, Outcome};
use std::rc::Rc;

/// What tests know of a kernel of a rule.
#[derive(Debug)]
pub struct UpdateTests {
    pub twin: UpdateTwin,
    /// Sizes that reach every branch of its text.
    pub sizes: &'static [[usize; 3]],
    /// Dispatches with random operands.
    pub problems: fn(&Lane) -> Vec<Problem>,
}

/// A dispatch's sizes and operands.
#[derive(Debug)]
pub struct Problem {
    pub sizes: [usize; 3],
    pub constant: Constant,
    pub operands: Vec<Operand>,
}

impl Problem {
    pub fn new(sizes: [usize; 3], operands: Vec<Operand>) -> Self {
        Self { sizes, constant: Constant(0.0), operands }
    }
}

/// Lengths around a workgroup and past all of them, elements that are decayed, whether the step updates.
pub const RUNS: [(usize, usize, bool); 4] =
    [(1, 0, true), (1003, 640, true), (70_000, 69_999, true), (300, 100, false)];
/// Elements after a run in a longer buffer.
pub const BEHIND: usize = 70;

/// A step with a rule's default numbers.
pub fn step_of(rule: &'static Rule) -> Step {
    let optimizer = Optimizer::new(rule, &Numbers::default());
    Step {
        tokens: 1,
        learning_rate: 3e-3,
        gradient_scale: 0.25,
        max_grad_norm: 1.0,
        weight_decay: 0.1,
        carried: optimizer.carried_terms(),
        numbers: optimizer.uniform(),
        ..Step::default()
    }
}

/// What `step_decision_forward` leaves of a step that updates or not, and the step.
pub fn decided(update: bool, step: &Step) -> [Operand; 2] {
    decided_at([0.271, 0.142_6], update, step)
}

/// A decision with these numbers carried.
pub fn decided_at([first, second]: [f32; 2], update: bool, step: &Step) -> [Operand; 2] {
    let factor = if update { 0.37f32 } else { 0.0 };
    [Operand::floats(&[first, second, factor, f32::from(update)]), Operand::uniform(step)]
}

/// The operands of an update with one moment, bound last.
pub fn one_moment(
    [weights, gradients, moment]: [&[f32]; 3],
    decided: [Operand; 2],
    decay_end: usize,
) -> Problem {
    let mut operands = vec![Operand::floats(weights), Operand::floats(gradients)];
    operands.extend(decided);
    operands.extend([Operand::range(0, 1, 0, decay_end), Operand::floats(moment)]);
    Problem::new([weights.len(), 0, 0], operands)
}

pub(crate) fn cases() -> Vec<Case> {
    let kernels = RULES.iter().flat_map(|rule| rule.kernels);
    let case = |kernel: &&'static UpdateKernel| {
        let kernel = *kernel;
        let name = kernel.name.strip_suffix("_forward").unwrap_or(kernel.name);
        Case::new(name, move |lane| hold(lane, kernel))
    };
    kernels.map(case).collect()
}

async fn hold(lane: Rc<Lane>, kernel: &'static UpdateKernel) -> Outcome {
    for (index, problem) in (kernel.tests.problems)(&lane).into_iter().enumerate() {
        let spec = UpdateSpec { constant: problem.constant, ..kernel.of(problem.sizes) };
        let made = lane.variants_of(spec).map_err(text)?;
        let profiled = if index == 0 { of_profile(&made, &problem.operands) } else { None };
        for operands in [Some(problem.operands), profiled].into_iter().flatten() {
            hold_to_twin(&lane, (kernel, spec), &made, &operands).await?;
        }
    }
    Ok(lane.summary())
}

/// The operands of a profile's step, which leaves the state as it was; none of a kernel that knows no step.
fn of_profile(made: &[Kernel], operands: &[Operand]) -> Option<Vec<Operand>> {
    let at = made.first()?.bindings.iter().position(|binding| binding.name == "step")?;
    let words = bytemuck::cast_slice(operands[at].contents());
    let step = Step { still: 1, ..bytemuck::pod_read_unaligned(words) };
    let mut operands = operands.to_vec();
    operands[at] = Operand::uniform(&step);
    Some(operands)
}

/// Runs the variants of a kernel on operands, and holds what they write to what the twin does.
async fn hold_to_twin(
    lane: &Lane,
    (kernel, spec): (&'static UpdateKernel, UpdateSpec),
    made: &[Kernel],
    operands: &[Operand],
) -> Result<(), String> {
    let jobs: Vec<_> = made.iter().map(|kernel| Job::new(kernel, 1, operands.to_vec())).collect();
    for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
        let words = operands.iter().map(|operand| operand.contents().to_vec());
        let bound = job.kernel.bindings.iter().copied().zip(words);
        let mut cpu = Cpu::<f64>::new((spec, job.kernel.workgroup_size), bound);
        (kernel.tests.twin.f64)(&mut cpu).map_err(text)?;
        let written = cpu.bound.iter().filter(|b| b.binding.access == Access::ReadWrite);
        for (index, bound) in written.enumerate() {
            compare(&got, index, bound).map_err(of(&job.kernel))?;
        }
    }
    Ok(())
}

/// Holds an output to what the twin has made of it. What the twin has not written stays to the bit.
fn compare(got: &Outputs, index: usize, bound: &BoundWords<f64>) -> Result<(), String> {
    let (what, words) = (bound.binding.name, got.words(index));
    let (mut kept, mut before) = (vec![], vec![]);
    let [mut numbers, mut expected, mut terms] = [const { vec![] }; 3];
    let [mut codes, mut wanted] = [const { vec![] }; 2];
    for (i, written) in bound.written.iter().enumerate() {
        let word = words.get(i).copied().unwrap_or_default();
        match *written {
            None => {
                kept.push(word);
                before.push(bound.words[i]);
            }
            Some(Written::Number(number)) => {
                numbers.push(f64::from(f32::from_bits(word)));
                expected.push(number);
                terms.push(bound.terms[i]);
            }
            Some(Written::Word(number)) => {
                codes.extend(word.to_le_bytes());
                wanted.extend(number.to_le_bytes());
            }
        }
    }
    same(what, &kept, &before)?;
    let numbers: Vec<f32> = numbers.into_iter().map(|x| x as f32).collect();
    close_to_terms(what, &numbers, &expected, &terms, ROUNDING)?;
    same_codes(what, &codes, &wanted)
}

/// Compares codes. Values half way between two may have either.
fn same_codes(what: &str, got: &[u8], wanted: &[u8]) -> Result<(), String> {
    let apart = got.iter().zip(wanted).map(|(a, b)| a.abs_diff(*b));
    let (other, most) = apart.fold((0, 0), |(n, most), d| (n + usize::from(d > 0), most.max(d)));
    let allowed = 1 + got.len() / 500;
    let message = || format!("{what}: {other} of {} codes differ, by up to {most}", got.len());
    forbid((what, wanted, allowed), || most > 1 || other > allowed, message)
}
