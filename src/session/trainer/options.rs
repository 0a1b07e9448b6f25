//! Options of a trainer, as in the JavaScript contract.

use crate::error::{Error, Result};
use crate::schedule::{Schedule, ScheduleKind};
use serde::{Deserialize, Serialize};

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
    pub seed: u64,
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
            seed: 0,
        }
    }
}

impl TrainerOptions {
    pub fn from_json(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|e| Error::options(format!("trainer options: {e}")))
    }

    /// Checks every value and gives the schedule.
    pub(super) fn validate(&self) -> Result<Schedule> {
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
        check(
            self.epsilon.is_finite() && self.epsilon > 0.0,
            "epsilon",
            self.epsilon,
            "a finite number above 0",
        )?;
        let decay = self.weight_decay;
        check(
            decay.is_finite() && decay >= 0.0,
            "weightDecay",
            decay,
            "a finite number from 0 up",
        )?;
        if let Some(norm) = self.max_grad_norm {
            check(
                norm.is_finite() && norm > 0.0,
                "maxGradNorm",
                norm,
                "a finite number above 0, or null for no clipping",
            )?;
        }
        let accumulation = self.gradient_accumulation as f64;
        check(self.gradient_accumulation >= 1, "gradientAccumulation", accumulation, "at least 1")?;
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
