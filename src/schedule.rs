//! Learning-rate schedules.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;

/// Shape of the decay after the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScheduleKind {
    Constant,
    Linear,
    #[default]
    Cosine,
}

/// Learning rate as a function of the zero-based optimizer step n:
/// - warm-up, n < `warmup_steps`: peak · (n + 1) / `warmup_steps`, so the last warm-up step has
///   the peak and no step has zero;
/// - then, with p = (n − `warmup_steps`) / (`total_steps` − 1 − `warmup_steps`) held to at most 1:
///   linear peak + (min − peak) · p, cosine min + (peak − min) · (1 + cos πp) / 2. The first step
///   after warm-up has the peak, step `total_steps` − 1 and all after it the minimum;
/// - the peak for ever when the kind is constant or `total_steps` is not known.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Schedule {
    #[serde(rename = "schedule")]
    pub kind: ScheduleKind,
    /// The peak.
    pub learning_rate: f64,
    pub warmup_steps: u64,
    pub total_steps: Option<u64>,
    pub min_learning_rate: f64,
}

impl Schedule {
    /// Checks the values; `min_learning_rate` defaults to a tenth of the peak.
    pub fn new(
        kind: ScheduleKind,
        learning_rate: f64,
        warmup_steps: u64,
        total_steps: Option<u64>,
        min_learning_rate: Option<f64>,
    ) -> Result<Self> {
        if !(learning_rate.is_finite() && learning_rate > 0.0) {
            return Err(Error::options(format!(
                "learningRate is {learning_rate}; it must be a finite number above 0"
            )));
        }
        let min_learning_rate = min_learning_rate.unwrap_or(learning_rate / 10.0);
        if !(0.0..=learning_rate).contains(&min_learning_rate) {
            return Err(Error::options(format!(
                "minLearningRate is {min_learning_rate:?}; it must be from 0 to \
                 learningRate ({learning_rate:?})"
            )));
        }
        if total_steps == Some(0) {
            return Err(Error::options("totalSteps is 0; it must be at least 1"));
        }
        Ok(Self { kind, learning_rate, warmup_steps, total_steps, min_learning_rate })
    }

    /// Learning rate of the zero-based step; the same bits on every platform.
    pub fn learning_rate(&self, step0: u64) -> f64 {
        let (peak, min) = (self.learning_rate, self.min_learning_rate);
        if step0 < self.warmup_steps {
            return peak * (step0 + 1) as f64 / self.warmup_steps as f64;
        }
        let Some(total) = self.total_steps else { return peak };
        let decay_steps = total.saturating_sub(self.warmup_steps).saturating_sub(1).max(1);
        // Step `total` and later stay at the minimum even where there was no decay step at all.
        let progress = if step0 >= total {
            1.0
        } else {
            ((step0 - self.warmup_steps) as f64 / decay_steps as f64).min(1.0)
        };
        match self.kind {
            ScheduleKind::Constant => peak,
            ScheduleKind::Linear => peak + (min - peak) * progress,
            ScheduleKind::Cosine => min + (peak - min) * 0.5 * (1.0 + libm::cos(PI * progress)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(kind: ScheduleKind, warmup: u64, total: Option<u64>) -> Schedule {
        Schedule::new(kind, 1e-3, warmup, total, None).unwrap()
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-15
    }

    #[test]
    fn warm_up_is_linear_from_its_first_fraction_to_the_peak() {
        for kind in [ScheduleKind::Constant, ScheduleKind::Linear, ScheduleKind::Cosine] {
            let s = schedule(kind, 20, Some(300));
            assert!(close(s.learning_rate(0), 1e-3 / 20.0));
            assert!(close(s.learning_rate(9), 0.5e-3));
            assert!(close(s.learning_rate(19), 1e-3));
            assert!(close(s.learning_rate(20), 1e-3));
        }
    }

    #[test]
    fn decay_ends_at_the_minimum_on_the_last_step_and_stays() {
        for kind in [ScheduleKind::Linear, ScheduleKind::Cosine] {
            let s = schedule(kind, 20, Some(300));
            for step in [299, 300, 1 << 60] {
                assert!(close(s.learning_rate(step), 1e-4));
            }
            assert!((20..299).all(|n| s.learning_rate(n + 1) < s.learning_rate(n)));
        }
        // Half way: 21 decay steps, the eleventh in the middle.
        for kind in [ScheduleKind::Linear, ScheduleKind::Cosine] {
            assert!(close(schedule(kind, 0, Some(21)).learning_rate(10), 5.5e-4));
        }
        let quarter = schedule(ScheduleKind::Cosine, 0, Some(5)).learning_rate(1);
        assert!(close(quarter, 1e-4 + 9e-4 * 0.5 * (1.0 + std::f64::consts::FRAC_1_SQRT_2)));
    }

    #[test]
    fn without_a_known_end_the_peak_holds() {
        for kind in [ScheduleKind::Constant, ScheduleKind::Linear, ScheduleKind::Cosine] {
            assert_eq!(schedule(kind, 3, None).learning_rate(1 << 40), 1e-3);
        }
        assert_eq!(schedule(ScheduleKind::Constant, 3, Some(10)).learning_rate(11), 1e-3);
    }

    #[test]
    fn degenerate_lengths_have_a_value() {
        let s = schedule(ScheduleKind::Cosine, 20, Some(5));
        assert!(close(s.learning_rate(4), 0.25e-3));
        assert!(close(s.learning_rate(25), 1e-4));
        assert_eq!(schedule(ScheduleKind::Linear, 0, Some(1)).learning_rate(0), 1e-3);
    }

    #[test]
    fn bad_values_are_refused() {
        let make = |lr, min, total| Schedule::new(ScheduleKind::Cosine, lr, 0, total, min);
        for bad in [
            make(0.0, None, None),
            make(f64::NAN, None, None),
            make(1.0, Some(-0.1), None),
            make(1.0, Some(1.1), None),
            make(1.0, Some(f64::NAN), None),
            make(1.0, None, Some(0)),
        ] {
            assert_eq!(bad.unwrap_err().code, crate::error::ErrorCode::InvalidOptions);
        }
    }
}
