//! Options of a trainer, as in the JavaScript contract.

use crate::error::{Error, Result};
use crate::lower::TrainChoices;
use crate::schedule::{Schedule, ScheduleKind};
use serde::{Deserialize, Serialize};

/// Most micro-steps of a step.
const MOST_ACCUMULATION: u64 = 1 << 16;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TrainerOptions {
    pub learning_rate: f64,
    pub schedule: ScheduleKind,
    pub warmup_steps: u64,
    pub total_steps: Option<u64>,
    pub min_learning_rate: Option<f64>,
    pub weight_decay: f64,
    pub beta1: f64,
    pub beta2: f64,
    pub epsilon: f64,
    /// None: no clipping.
    pub max_grad_norm: Option<f64>,
    pub gradient_accumulation: u64,
    pub tokens_per_step: usize,
    /// Activations are computed again in the backward pass instead of kept: less memory, more time.
    pub recompute: bool,
    pub precision: Precision,
    /// Only so many layers are trained, and what follows them; none: all.
    pub last_layers: Option<usize>,
    pub seed: u64,
}

/// In what training computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    #[default]
    F32,
    /// Products read the weights in f16; everything else is f32.
    Mixed,
}

impl Default for TrainerOptions {
    fn default() -> Self {
        Self {
            learning_rate: 1e-3,
            schedule: ScheduleKind::Cosine,
            warmup_steps: 20,
            total_steps: None,
            min_learning_rate: None,
            weight_decay: 0.1,
            beta1: 0.9,
            beta2: 0.95,
            epsilon: 1e-8,
            max_grad_norm: Some(1.0),
            gradient_accumulation: 1,
            tokens_per_step: 1024,
            recompute: false,
            precision: Precision::F32,
            last_layers: None,
            seed: 0,
        }
    }
}

impl TrainerOptions {
    pub fn from_json(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|e| Error::options(format!("trainer options: {e}")))
    }

    /// What plans depend on.
    pub(in crate::session) fn choices(&self) -> TrainChoices {
        TrainChoices {
            tokens: self.tokens_per_step,
            recompute: self.recompute,
            mixed: self.precision == Precision::Mixed,
            last_layers: self.last_layers,
        }
    }

    /// Checks every value and gives the schedule.
    pub(in crate::session) fn validate(&self) -> Result<Schedule> {
        let check = |good: bool, name: &str, value: f64, allowed: &str| {
            if good {
                Ok(())
            } else {
                Err(Error::options(format!("{name} is {value}; it must be {allowed}")))
            }
        };
        let unit = |beta: f64| (0.0..1.0).contains(&beta);
        check(unit(self.beta1), "beta1", self.beta1, "at least 0 and below 1")?;
        check(unit(self.beta2), "beta2", self.beta2, "at least 0 and below 1")?;
        // The GPU computes in f32, and may take what is below its normal numbers for 0.
        let normal = |value: f64| value > 0.0 && (value as f32).is_normal();
        let epsilon = self.epsilon;
        check(normal(epsilon), "epsilon", epsilon, "a number from 1.2e-38 to 3.4e38")?;
        let rate = self.learning_rate;
        check(normal(rate), "learningRate", rate, "a number from 1.2e-38 to 3.4e38")?;
        let decay = self.weight_decay;
        check(
            (decay as f32).is_finite() && decay >= 0.0,
            "weightDecay",
            decay,
            "a number from 0 to 3.4e38",
        )?;
        if let Some(norm) = self.max_grad_norm {
            check(
                normal(norm),
                "maxGradNorm",
                norm,
                "a number from 1.2e-38 to 3.4e38, or null for no clipping",
            )?;
        }
        let accumulation = self.gradient_accumulation;
        check(
            (1..=MOST_ACCUMULATION).contains(&accumulation),
            "gradientAccumulation",
            accumulation as f64,
            "from 1 to 65536",
        )?;
        let tokens = self.tokens_per_step;
        check(
            (1..=1 << 24).contains(&tokens),
            "tokensPerStep",
            tokens as f64,
            "from 1 to 16777216",
        )?;
        Schedule::new(
            self.schedule,
            self.learning_rate,
            self.warmup_steps,
            self.total_steps,
            self.min_learning_rate,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::philox;

    #[test]
    fn numbers_that_f32_cannot_hold_are_refused() {
        let refused = |options: TrainerOptions| options.validate().unwrap_err().message;
        let default = TrainerOptions::default;
        for epsilon in [0.0, 1e-46, 1e-39, 1e39, f64::NAN] {
            assert!(refused(TrainerOptions { epsilon, ..default() }).contains("epsilon is"));
        }
        for norm in [0.0, 1e-46, 1e39] {
            let options = TrainerOptions { max_grad_norm: Some(norm), ..default() };
            assert!(refused(options).contains("maxGradNorm is"));
        }
        for learning_rate in [0.0, -1.0, 1e-46, 1e-39, 1e39, f64::NAN] {
            let options = TrainerOptions { learning_rate, ..default() };
            assert!(refused(options).contains("learningRate is"));
        }
        let options = TrainerOptions { weight_decay: 1e39, ..default() };
        assert!(refused(options).contains("weightDecay is"));
        let options = TrainerOptions { gradient_accumulation: 1 << 32, ..default() };
        assert!(refused(options).contains("gradientAccumulation is"));
        TrainerOptions { epsilon: 1.2e-38, max_grad_norm: Some(1e30), ..default() }
            .validate()
            .unwrap();
    }

    /// A resumed run has the saved run's options to the last bit.
    #[test]
    fn options_survive_json_to_the_bit() {
        for i in 0..2000 {
            let [low, high, ..] = philox([i, 0, 0, 0], [7, 7]);
            let rate = f64::from(low) / 2f64.powi(32) + f64::from(high) / 2f64.powi(64);
            let options = TrainerOptions { learning_rate: rate, ..TrainerOptions::default() };
            let text = serde_json::to_string(&options).unwrap();
            let read = TrainerOptions::from_json(&text).unwrap().learning_rate;
            assert_eq!(read.to_bits(), rate.to_bits(), "{text}");
        }
    }
}
