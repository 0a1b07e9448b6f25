//! What a saved training run holds besides the model: `optimizer.safetensors` and `trainer_state.json`.

use super::loss::LossSum;
use super::objective::Normalized;
use super::options::TrainerOptions;
use super::run_progress::RunProgress;
use crate::decimal::Decimal;
use crate::error::{Error, Result};
use crate::optim::{AVERAGES, Content, StateSet, Stored, Trained, stored_sets, stored_state};
use crate::params::Params;
use crate::plan::{Buffer, METRICS_BYTES, OPTIMIZER_BYTES};
use crate::random::split;
use serde::{Deserialize, Serialize};

/// Largest count: what a double, and so JavaScript, holds exactly.
const MOST: u64 = (1 << 53) - 1;
const FORMAT: &str = "tinyloom-trainer-1";

/// `trainer_state.json`. Floats that live on the GPU are kept as their bits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::session) struct TrainerState {
    format: String,
    pub options: TrainerOptions,
    pub progress: RunProgress,
    /// An `OptimizerState`: what the rule carries, and what the last decision left.
    pub optimizer: Vec<u32>,
    /// A `StepResult`, whose loss sum decides whether an accumulation in progress may update.
    pub metrics: Vec<u32>,
    /// The nats of an accumulation in progress: the halves of an f64's bits, the lower first. Without them,
    /// as in states of version 0.1.0, those in `metrics` count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nats: Option<[u32; 2]>,
    /// In a run that trains a LoRA adapter: a checksum of the base's weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<u32>,
}

impl TrainerState {
    pub fn new(
        options: TrainerOptions,
        progress: RunProgress,
        optimizer: Vec<u32>,
        metrics: Vec<u32>,
        losses: LossSum,
    ) -> Self {
        // Between accumulations there is no sum. Where a micro-step's result was lost, only the GPU has it.
        let whole = progress.micro_step > 0 && losses.counted == progress.counted;
        let nats = whole.then(|| split(losses.nats.to_bits()));
        Self { format: FORMAT.into(), options, progress, optimizer, metrics, nats, base: None }
    }

    pub fn from_json(text: &str) -> Result<Self> {
        let state: Self = serde_json::from_str(text)
            .map_err(|e| Error::checkpoint(format!("trainer_state.json cannot be read: {e}")))?;
        if state.format != FORMAT {
            let found = &state.format;
            return Err(Error::checkpoint(format!(
                "trainer_state.json has format {found:?}; this version reads {FORMAT:?}"
            )));
        }
        if state.optimizer.len() as u64 * 4 != OPTIMIZER_BYTES
            || state.metrics.len() as u64 * 4 != METRICS_BYTES
        {
            return Err(Error::checkpoint(
                "trainer_state.json: optimizer must hold 4 numbers and metrics 8",
            ));
        }
        Ok(state)
    }

    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string_pretty(self).map_err(|e| Error::internal(e.to_string()))
    }

    /// The losses of the accumulation in progress.
    pub fn losses(&self) -> LossSum {
        let nats = match self.nats {
            Some([low, high]) => f64::from_bits(u64::from(high) << 32 | u64::from(low)),
            None => f64::from(f32::from_bits(self.metrics[2])),
        };
        LossSum { nats, counted: self.progress.counted }
    }

    /// Options that no run can have had.
    pub fn wrong(error: Error) -> Error {
        Error::checkpoint(format!("trainer_state.json: {}", error.message))
    }

    /// Refuses what no run can have saved.
    pub fn check(&self) -> Result<()> {
        let wrong = |what: String| Err(Self::wrong(Error::checkpoint(what)));
        self.options.validate().map_err(Self::wrong)?;
        let RunProgress { step, micro_step, counted, cursor, normalized } = self.progress;
        let number = normalized.map_or(0.0, Normalized::number);
        if !(number.is_finite() && number >= 0.0) {
            return wrong(format!("progress.normalized is {number}; it must be at least 0"));
        }
        for (name, value) in [("step", step), ("counted", counted), ("cursor", cursor)] {
            if value > MOST {
                return wrong(format!("progress.{name} is {value}; it may be at most {MOST}"));
            }
        }
        let accumulation = self.options.gradient_accumulation;
        if micro_step >= accumulation {
            return wrong(format!(
                "progress.microStep is {micro_step}; it must be below gradientAccumulation, \
                 {accumulation}"
            ));
        }
        let numbers = self.optimizer.iter().map(|&bits| f32::from_bits(bits));
        let chosen = self.options.optimizer();
        let carried = (chosen.rule.carried)(&chosen);
        let possible = |(i, x): (usize, f32)| match i {
            0 | 1 => carried[i].allows(x),
            2 => x.is_finite() && x >= 0.0,
            _ => (0.0..=1.0).contains(&x),
        };
        if !numbers.clone().enumerate().all(possible) {
            let numbers: Vec<_> = numbers.map(|x| Decimal(x).to_string()).collect();
            let numbers = numbers.join(", ");
            return wrong(format!("optimizer holds the numbers {numbers}, which no run writes"));
        }
        Ok(())
    }
}

/// The gradients, which an optimizer file holds in the middle of an accumulation.
const GRADIENTS: StateSet = StateSet::new("gradient", Buffer::Gradients, Content::Numbers);

/// What an optimizer file holds of a parameter.
pub(in crate::session) fn saved_sets(
    options: &TrainerOptions,
    progress: RunProgress,
    trained: &Trained,
) -> Vec<StateSet> {
    let mut sets = options.optimizer().state(trained).to_vec();
    sets.extend(more_sets(options, progress));
    sets
}

/// What it holds of every parameter besides the optimizer's own state.
fn more_sets(options: &TrainerOptions, progress: RunProgress) -> Vec<StateSet> {
    let average = options.ema.map(|_| AVERAGES);
    average.into_iter().chain((progress.micro_step > 0).then_some(GRADIENTS)).collect()
}

/// All tensors of an optimizer file, in the order of a save.
pub(in crate::session) fn saved(
    options: &TrainerOptions,
    progress: RunProgress,
    layout: &Params,
) -> Vec<Stored> {
    let mut stored = stored_state(&options.optimizer(), layout);
    stored.extend(stored_sets(layout, &more_sets(options, progress)));
    stored
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_that_cannot_be_are_refused() {
        let good = TrainerState {
            format: FORMAT.into(),
            options: TrainerOptions { gradient_accumulation: 4, ..TrainerOptions::default() },
            progress: RunProgress {
                step: 9,
                micro_step: 3,
                counted: 5,
                cursor: 39,
                normalized: None,
            },
            optimizer: [0.5f32, 0.1, 64.0, 1.0].map(f32::to_bits).to_vec(),
            metrics: vec![0, 0, 2.5f32.to_bits(), 0, 0, 0, 0, 0],
            nats: Some([0, 0x4004_0000]),
            base: None,
        };
        good.check().unwrap();
        assert_eq!(good.losses(), LossSum { nats: 2.5, counted: 5 });
        assert_eq!(TrainerState { nats: None, ..good.clone() }.losses(), good.losses());
        let refused = |change: &dyn Fn(&mut TrainerState), needle: &str| {
            let mut state = good.clone();
            change(&mut state);
            let message = state.check().unwrap_err().message;
            assert!(
                message.contains("trainer_state.json") && message.contains(needle),
                "{message}"
            );
        };
        refused(&|s| s.progress.step = u64::MAX, "progress.step");
        refused(&|s| s.progress.cursor = 1 << 60, "progress.cursor");
        refused(&|s| s.progress.micro_step = 4, "progress.microStep");
        refused(&|s| s.options.learning_rate = -1.0, "learningRate");
        for (i, x) in [(0, f32::NAN), (1, -0.5), (0, 1.5), (2, f32::INFINITY), (3, 2.0)] {
            refused(&move |s| s.optimizer[i] = x.to_bits(), "optimizer");
        }
    }
}
