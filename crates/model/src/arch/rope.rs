//! The angles of the rotary embedding (Su et al., arXiv:2104.09864) and of its scalings, in f64:
//! drivers' own powers and sines err too much.

use crate::config::{RopeConfig, RopeScaling};
use std::f64::consts::TAU;

/// Angles of the rotary embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Elements of a head that are rotated: all of them, or those at its beginning.
    pub head_dim: usize,
    pub config: RopeConfig,
}

impl Rope {
    /// Angles theta^(−2i / head_dim), without a scaling.
    pub const fn plain(head_dim: usize, theta: f64) -> Self {
        Self { head_dim, config: RopeConfig { theta, scaling: RopeScaling::Default } }
    }

    /// Radians that each of the `head_dim / 2` pairs turns per position.
    ///
    /// # Arguments
    /// `long`: in texts of more tokens than [`RopeConfig::short_tokens`].
    pub fn frequencies(&self, long: bool) -> Vec<f64> {
        let plain = (0..self.head_dim / 2).map(|pair| {
            let exponent = -2.0 * pair as f64 / self.head_dim as f64;
            (pair, libm::pow(self.config.theta, exponent))
        });
        plain.map(|(pair, frequency)| self.scaled(pair, frequency, long)).collect()
    }

    /// Factor on cosines and sines.
    pub fn magnitude(&self) -> f64 {
        match self.config.scaling {
            RopeScaling::Yarn { attention_factor, .. }
            | RopeScaling::LongRope { attention_factor, .. } => attention_factor,
            _ => 1.0,
        }
    }

    fn scaled(&self, pair: usize, frequency: f64, long: bool) -> f64 {
        match self.config.scaling {
            RopeScaling::Default | RopeScaling::Dynamic { .. } => frequency,
            RopeScaling::LongRope { ref short, long: ref far, .. } => {
                frequency / if long { far[pair] } else { short[pair] }
            }
            RopeScaling::Linear { factor } => frequency / factor,
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original } => {
                // Turns within the first training's positions, between the two bounds.
                let turns = original as f64 * frequency / TAU;
                let share = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor);
                blend(share, frequency, factor)
            }
            RopeScaling::Yarn { factor, beta_fast, beta_slow, original, truncate, .. } => {
                let [low, high] =
                    self.correction_range(beta_fast, beta_slow, original as f64, truncate);
                let ramp = (pair as f64 - low) / (high - low);
                blend(1.0 - ramp, frequency, factor)
            }
        }
    }

    /// Pairs between which YaRN goes over from turning as before to turning slower.
    fn correction_range(&self, fast: f64, slow: f64, original: f64, truncate: bool) -> [f64; 2] {
        let dim = self.head_dim as f64;
        let pair = |rotations: f64| {
            dim * libm::log(original / (rotations * TAU)) / (2.0 * libm::log(self.config.theta))
        };
        let (mut low, mut high) = (pair(fast), pair(slow));
        if truncate {
            (low, high) = (libm::floor(low), libm::ceil(high));
        }
        let (low, high) = (low.max(0.0), high.min(dim - 1.0));
        [low, if low == high { high + 0.001 } else { high }]
    }
}

/// `share` of a frequency as it is, the rest of it divided by the factor.
fn blend(share: f64, frequency: f64, factor: f64) -> f64 {
    let share = share.clamp(0.0, 1.0);
    share * frequency + (1.0 - share) * frequency / factor
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frequencies(head_dim: usize, theta: f64, scaling: RopeScaling) -> Vec<f64> {
        Rope { head_dim, config: RopeConfig { theta, scaling } }.frequencies(false)
    }

    fn close(got: &[f64], expected: &[f64]) {
        assert_eq!(got.len(), expected.len());
        for (got, expected) in got.iter().zip(expected) {
            assert!((got - expected).abs() <= 2e-6 * expected, "{got} for {expected}");
        }
    }

    #[test]
    fn pairs_turn_slower_and_slower() {
        close(&frequencies(8, 10_000.0, RopeScaling::Default), &[1.0, 0.1, 0.01, 0.001]);
        let half = RopeScaling::Linear { factor: 2.0 };
        close(&frequencies(8, 10_000.0, half), &[0.5, 0.05, 0.005, 0.0005]);
    }

    /// As transformers 5.17 computes them, in f32.
    #[test]
    fn scalings_are_those_of_transformers() {
        let llama3 = RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original: 8192,
        };
        let expected = [
            1.0,
            0.193_922_76,
            0.037_606_03,
            0.007_292_665,
            5.248_46e-4,
            3.428_102_4e-5,
            6.647_869_7e-6,
            1.289_173_2e-6,
        ];
        close(&frequencies(16, 500_000.0, llama3), &expected);
        let yarn = RopeScaling::Yarn {
            factor: 4.0,
            attention_factor: 1.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            original: 2048,
            truncate: true,
        };
        let expected = [
            1.0,
            0.316_227_76,
            0.1,
            0.025_693_506,
            0.006_25,
            0.001_383_496_6,
            2.5e-4,
            7.905_694e-5,
        ];
        close(&frequencies(16, 10_000.0, yarn), &expected);
        let yarn = RopeScaling::Yarn {
            factor: 4.0,
            attention_factor: 1.0,
            beta_fast: 8.0,
            beta_slow: 1.0,
            original: 64,
            truncate: false,
        };
        let expected = [
            1.0,
            0.082_559_198,
            0.007_905_694_7,
            0.001_405_853_3,
            2.5e-4,
            4.445_698_5e-5,
            7.905_694e-6,
            1.405_853_4e-6,
        ];
        close(&frequencies(16, 1_000_000.0, yarn), &expected);
    }
}
