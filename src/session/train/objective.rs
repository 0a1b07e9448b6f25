//! What a step says of its loss besides targets: weights, a temperature, probabilities of a teacher, and what the sum is
//! divided by.

use super::options::{check, normal};
use super::run_progress::RunProgress;
use super::{Trainer, TrainerPlans};
use crate::data::{Batch, IGNORE_INDEX};
use crate::error::{Error, Result};
use crate::gpu::create_checked;
use crate::kernels::{SOFT_IDS, Steering, SteeringNumbers};
use crate::lower::TrainPlans;
use crate::plan::{Buffer, Plan, buffers};
use crate::session::memory::{self, MemoryBytes, Purpose};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::rc::Rc;

/// A step's own objective: Σ weights · loss / N.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StepObjective {
    /// A weight of each target's loss; none: all 1.
    #[serde(skip)]
    pub weights: Option<Vec<f32>>,
    #[serde(default)]
    pub normalize: Normalize,
    /// What the logits are divided by; none: 1.
    pub temperature: Option<f64>,
    pub soft: Option<SoftTargets>,
}

/// What the sum of a step's losses is divided by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "Value")]
pub enum Normalize {
    /// The targets that are not ignored.
    #[default]
    Targets,
    /// The sum of their weights' absolute values.
    Weights,
    /// This number, of the whole step.
    Number(f64),
}

impl TryFrom<Value> for Normalize {
    type Error = String;

    fn try_from(value: Value) -> std::result::Result<Self, String> {
        match (value.as_str(), value.as_f64()) {
            (Some("targets"), _) => Ok(Self::Targets),
            (Some("weights"), _) => Ok(Self::Weights),
            (_, Some(number)) => Ok(Self::Number(number)),
            _ => Err(format!(
                "normalize is {value}; it must be \"targets\", \"weights\" or a number"
            )),
        }
    }
}

/// Probabilities of a teacher for some tokens of each position.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SoftTargets {
    /// Tokens of each position; [`IGNORE_INDEX`] for none.
    #[serde(skip)]
    pub ids: Vec<u32>,
    #[serde(skip)]
    pub probabilities: Vec<f32>,
    /// KL(student ‖ teacher), not KL(teacher ‖ student).
    pub reverse: bool,
    /// Both are renormalised over the ids; else what these leave over is one further class.
    pub renormalized: bool,
    /// The share of the divergence in the loss.
    pub share: f64,
    /// What the logits are divided by here.
    pub temperature: f64,
}

/// N of a step until now, where it is not the number of targets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::session) enum Normalized {
    Weights(f64),
    Number(f64),
}

impl Normalized {
    pub fn number(self) -> f64 {
        match self {
            Self::Weights(number) | Self::Number(number) => number,
        }
    }
}

/// The least probability of a teacher that a reverse divergence reads: less would make it infinite.
const LEAST_PROBABILITY: f64 = 1e-10;

impl StepObjective {
    /// What its loss needs of the kernel. Weights of 1 and a temperature of 1 need nothing.
    pub(super) fn steering(&self) -> Steering {
        let ones = |weights: &Vec<f32>| weights.iter().all(|&weight| weight == 1.0);
        if self.soft.is_some() {
            Steering::SoftTargets
        } else if self.weights.as_ref().is_none_or(ones) && self.temperature() == 1.0 {
            Steering::Nothing
        } else {
            Steering::Weights
        }
    }

    fn temperature(&self) -> f64 {
        self.temperature.unwrap_or(1.0)
    }

    /// Refuses what is no objective of the batch.
    pub(super) fn check(&self, batch: &Batch, vocabulary: usize) -> Result<()> {
        if let Some(weights) = &self.weights {
            expect_length("targetWeights", weights.len(), batch.len(), "tokens")?;
            if let Some(i) = weights.iter().position(|weight| !weight.is_finite()) {
                let weight = f64::from(weights[i]);
                return Err(Error::options(format!(
                    "targetWeights[{i}] is {weight}; it must be a finite number of f32"
                )));
            }
        }
        if let Normalize::Number(number) = self.normalize {
            check(normal(number), "normalize", &number, "a number from 1.2e-38 to 3.4e38")?;
        }
        let temperature = self.temperature();
        check(reasonable(temperature), "temperature", &temperature, TEMPERATURES)?;
        self.soft.as_ref().map_or(Ok(()), |soft| soft.check(batch.len(), vocabulary))
    }

    /// The progress with N after this batch, whose targets it counts already.
    ///
    /// # Errors
    /// `invalid-options` where the micro-steps before were divided by something else, and where N of a step whose `last`
    /// batch this is would be 0.
    pub(super) fn normalized(
        &self,
        progress: RunProgress,
        batch: &Batch,
        last: bool,
    ) -> Result<RunProgress> {
        let own = self.own_divisor(batch);
        let normalized = match self.normalize {
            Normalize::Targets => None,
            Normalize::Weights => Some(Normalized::Weights(own)),
            Normalize::Number(number) => Some(Normalized::Number(number)),
        };
        let normalized = if progress.micro_step == 0 {
            normalized
        } else {
            match (progress.normalized, normalized) {
                (None, None) => None,
                (Some(Normalized::Weights(before)), Some(Normalized::Weights(own))) => {
                    Some(Normalized::Weights(before + own))
                }
                (Some(Normalized::Number(a)), Some(Normalized::Number(b))) if a == b => {
                    Some(Normalized::Number(a))
                }
                (before, own) => {
                    let (before, own) = (words(before), words(own));
                    return Err(Error::options(format!(
                        "normalize is {own}, and the step's first micro-step had {before}: all micro-steps of a step \
                         must have the same"
                    )));
                }
            }
        };
        let progress = RunProgress { normalized, ..progress };
        let divisor = progress.divisor();
        if last && divisor == 0.0 {
            return Err(Error::options(
                "normalize is \"weights\", and all targetWeights of the step are 0: there is nothing to divide by",
            ));
        }
        if last && !normal(divisor) {
            return Err(Error::options(format!(
                "normalize is \"weights\", and the targetWeights of the step add up to {divisor:?} without their signs; \
                 that must be a number from 1.2e-38 to 3.4e38"
            )));
        }
        Ok(progress)
    }

    /// N of the batch alone.
    pub(super) fn own_divisor(&self, batch: &Batch) -> f64 {
        match self.normalize {
            Normalize::Targets => batch.counted() as f64,
            Normalize::Number(number) => number,
            Normalize::Weights => {
                let weight = |i: usize| self.weights.as_ref().map_or(1.0, |weights| weights[i]);
                let counted = batch.targets.iter().enumerate().filter(|(_, t)| **t != IGNORE_INDEX);
                counted.map(|(i, _)| f64::from(weight(i).abs())).sum()
            }
        }
    }

    fn numbers(&self, tokens: usize) -> SteeringNumbers {
        let numbers = SteeringNumbers::of(self.temperature());
        let Some(soft) = &self.soft else { return numbers };
        SteeringNumbers {
            soft_ratio: (self.temperature() / soft.temperature) as f32,
            soft_factor: (soft.share * soft.temperature * soft.temperature) as f32,
            hard_share: (1.0 - soft.share) as f32,
            soft_count: (soft.ids.len() / tokens) as u32,
            reverse: u32::from(soft.reverse),
            rest: u32::from(!soft.renormalized),
            ..numbers
        }
    }
}

/// What N counts, as the option has it.
fn words(normalized: Option<Normalized>) -> String {
    match normalized {
        None => "\"targets\"".into(),
        Some(Normalized::Weights(_)) => "\"weights\"".into(),
        Some(Normalized::Number(number)) => format!("{number:?}"),
    }
}

/// Temperatures whose square and whose inverse f32 holds.
pub(in crate::session) const TEMPERATURES: &str = "a number from 1e-6 to 1e6";

pub(in crate::session) fn reasonable(temperature: f64) -> bool {
    (1e-6..=1e6).contains(&temperature)
}

fn expect_length(name: &str, length: usize, expected: usize, of: &str) -> Result<()> {
    if length == expected {
        return Ok(());
    }
    Err(Error::options(format!(
        "{name} has {length} elements and {of} has {expected}; the lengths must agree"
    )))
}

impl SoftTargets {
    fn check(&self, tokens: usize, vocabulary: usize) -> Result<()> {
        let Self { ids, probabilities, share, temperature, .. } = self;
        check((0.0..=1.0).contains(share), "soft.share", share, "from 0 to 1")?;
        check(reasonable(*temperature), "soft.temperature", temperature, TEMPERATURES)?;
        expect_length("soft.probabilities", probabilities.len(), ids.len(), "soft.ids")?;
        let count = ids.len() / tokens;
        if ids.len() != count * tokens || !(1..=SOFT_IDS).contains(&count) {
            return Err(Error::options(format!(
                "soft.ids has {} elements for {tokens} tokens; give 1 to {SOFT_IDS} for each token, 0xffffffff for none",
                ids.len()
            )));
        }
        for (row, (ids, own)) in ids.chunks(count).zip(probabilities.chunks(count)).enumerate() {
            let (mut sum, mut given) = (0.0, 0);
            for (place, (&id, &p)) in ids.iter().zip(own).enumerate() {
                if id == IGNORE_INDEX {
                    continue;
                }
                if id as usize >= vocabulary {
                    return Err(Error::tokens(format!(
                        "soft.ids of position {row} has {id}; an id must be below vocab_size, {vocabulary}, or 0xffffffff"
                    )));
                }
                if ids[..place].contains(&id) {
                    return Err(Error::tokens(format!(
                        "soft.ids of position {row} has {id} twice"
                    )));
                }
                if !(0.0..=1.0).contains(&p) {
                    return Err(Error::options(format!(
                        "soft.probabilities of position {row} has {} for {id}; it must be from 0 to 1",
                        f64::from(p)
                    )));
                }
                sum += f64::from(p);
                given += 1;
            }
            let none = self.renormalized && sum == 0.0 && given > 0;
            if sum > 1.0 + 1e-3 || none {
                let allowed = if none { "above 0 to be renormalised" } else { "at most 1" };
                return Err(Error::options(format!(
                    "soft.probabilities of position {row} add up to {sum}; the sum must be {allowed}"
                )));
            }
        }
        Ok(())
    }

    /// (token, bits of its probability) of each position, then that of the rest, as the kernel reads them.
    fn words(&self, tokens: usize) -> Vec<u32> {
        let count = self.ids.len() / tokens;
        let least = if self.reverse { LEAST_PROBABILITY } else { 0.0 };
        let mut words = vec![];
        for (ids, own) in self.ids.chunks(count).zip(self.probabilities.chunks(count)) {
            let given = ids.iter().zip(own).filter(|(id, _)| **id != IGNORE_INDEX);
            let sum: f64 = given.clone().map(|(_, &p)| f64::from(p)).sum();
            let whole = if self.renormalized || sum > 1.0 { sum } else { 1.0 };
            let bits = |p: f64| (p.max(least) as f32).to_bits();
            let before = words.len();
            for (id, p) in given {
                words.extend([*id, bits(f64::from(*p) / whole)]);
            }
            while words.len() < before + 2 * count {
                words.extend([IGNORE_INDEX, 0]);
            }
            words.extend([IGNORE_INDEX, bits((1.0 - sum / whole).max(0.0))]);
        }
        words
    }
}

/// The plans of a loss that is steered, and the same installed.
#[derive(Debug)]
pub(super) struct SteeredPlans {
    steering: Steering,
    pub micro_step: Plan,
    pub long: Option<Plan>,
    pub installed: TrainerPlans,
}

impl Trainer {
    /// The plans of a step's loss, compiled and bound when the first step asks for them; none: the trainer's own.
    pub(super) async fn steered(&self, steering: Steering) -> Result<Option<Rc<SteeredPlans>>> {
        if steering == Steering::Nothing {
            return Ok(None);
        }
        let known = self.steered_plans.borrow().iter().find(|of| of.steering == steering).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let options = self.options();
        let plans = Self::tuned(&self.model, &options, steering).await?;
        if plans.slots != self.plans.slots {
            return Err(Error::internal("another loss has other activations"));
        }
        let all: Vec<_> = std::iter::once(&plans.micro_step).chain(&plans.long).collect();
        let (gpu, weights) = (&**self.model.gpu(), self.model.weights.buffers()?);
        gpu.prepare(&all).await;
        let mut sizes = buffers(all.iter().copied());
        self.buffer(Buffer::Step)?;
        sizes.retain(|&name, _| !weights.has(name) && self.buffer(name).is_err());
        let asked = MemoryBytes::of_sizes(&sizes).with_ranges(all);
        memory::check_memory(gpu, Purpose::Trainer, &asked)?;
        let make = || {
            let mut resources = self.resources.borrow_mut();
            let Some(resources) = resources.as_mut() else {
                return self.buffer(Buffer::Step).map(|_| None);
            };
            let before = resources.bytes();
            resources.allocate(&sizes, &[])?;
            let micro_step = resources.install(&plans.micro_step, &[&weights])?;
            let long = plans.long.as_ref().map(|plan| resources.install(plan, &[&weights]));
            let installed = TrainerPlans { micro_step, long: long.transpose()?, ..self.installed };
            let bytes = &self.model.trainer_bytes;
            bytes.set(bytes.get() + resources.bytes() - before);
            Ok(Some(installed))
        };
        let made = create_checked(gpu, make).await;
        let made = made.map_err(|error| memory::explained(error, Purpose::Trainer, &asked))?;
        let installed = made.ok_or_else(|| Error::internal("the trainer was freed"))?;
        let TrainPlans { micro_step, long, .. } = plans;
        let steered = Rc::new(SteeredPlans { steering, micro_step, long, installed });
        self.steered_plans.borrow_mut().push(Rc::clone(&steered));
        Ok(Some(steered))
    }

    /// What the kernels of a steered loss read.
    pub(super) fn write_objective(&self, objective: &StepObjective, tokens: usize) -> Result<()> {
        if !objective.steering().is_weighted() {
            return Ok(());
        }
        let gpu = self.model.gpu();
        let write = |name, bytes: &[u8]| gpu.write(self.buffer(name)?, 0, bytes);
        write(Buffer::Steering, bytemuck::bytes_of(&objective.numbers(tokens)))?;
        match &objective.weights {
            Some(weights) => write(Buffer::TargetWeights, bytemuck::cast_slice(weights))?,
            None => write(Buffer::TargetWeights, bytemuck::cast_slice(&vec![1f32; tokens]))?,
        }
        match &objective.soft {
            Some(soft) => write(Buffer::SoftTargets, bytemuck::cast_slice(&soft.words(tokens))),
            None => Ok(()),
        }
    }
}
