//! Losses of several micro-steps.

use std::ops::Add;

/// The sum of losses, and the number of their targets. In f32 both would stop growing: it has no odd number above 2²⁴,
/// and a step may have 2⁴⁰ targets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::session) struct LossSum {
    pub nats: f64,
    pub counted: u64,
}

impl LossSum {
    /// Nats over what a step divides them by; nothing over nothing is 0.
    pub fn over(self, divisor: f64) -> f64 {
        if divisor == 0.0 { 0.0 } else { self.nats / divisor }
    }

    /// The sum through a micro-step, of which `own` and the GPU's sum `on_gpu` are known. The latter, in
    /// f32, counts only where the result of a micro-step before has not arrived.
    pub fn through(self, own: Self, on_gpu: Self) -> Self {
        if self.counted + own.counted == on_gpu.counted {
            self + own
        } else if self.counted < on_gpu.counted {
            on_gpu
        } else {
            self // A later one has been read before.
        }
    }
}

impl Add for LossSum {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { nats: self.nats + other.nats, counted: self.counted + other.counted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_accumulation_loses_no_target() {
        let one = LossSum { nats: 257.0 * f64::from(2.3f32), counted: 257 };
        let whole = (0..1 << 20).fold(LossSum::default(), |sum, _| sum + one);
        assert_eq!(whole.counted, 257 << 20);
        let mean = whole.over(whole.counted as f64);
        assert!((mean - f64::from(2.3f32)).abs() < 1e-9, "{mean}");
        // As it was: f32 counts otherwise from 2^24 on.
        let counted = (0..1 << 20).fold(0f32, |sum, _| sum + 257.0);
        assert_ne!(f64::from(counted), f64::from(257 << 20));
    }
}
