//! Optimizers by name, with the options that each has.

use super::Optimizer;
use super::rules::{AdamW, Lion, Sgd};
use serde::{Deserialize, Serialize};

/// An optimizer, by its name in the JavaScript contract.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimizerKind {
    #[default]
    AdamW,
    Lion,
    Sgd,
}

/// The numbers that some optimizers have and others have not; none: the optimizer has no such number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Numbers {
    pub beta1: Option<f64>,
    pub beta2: Option<f64>,
    pub epsilon: Option<f64>,
    pub momentum: Option<f64>,
}

impl OptimizerKind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::AdamW => "adamw",
            Self::Lion => "lion",
            Self::Sgd => "sgd",
        }
    }

    /// The numbers that it has, at their defaults: nanoGPT's for AdamW, the papers' for the others.
    pub const fn numbers(self) -> Numbers {
        let none = Numbers { beta1: None, beta2: None, epsilon: None, momentum: None };
        match self {
            Self::AdamW => {
                Numbers { beta1: Some(0.9), beta2: Some(0.95), epsilon: Some(1e-8), ..none }
            }
            Self::Lion => Numbers { beta1: Some(0.9), beta2: Some(0.99), ..none },
            Self::Sgd => Numbers { momentum: Some(0.9), ..none },
        }
    }

    /// The optimizer; a momentum of 0 needs no state.
    pub fn optimizer(self, momentum: bool) -> &'static dyn Optimizer {
        match self {
            Self::AdamW => &AdamW,
            Self::Lion => &Lion,
            Self::Sgd if momentum => &Sgd { momentum: true },
            Self::Sgd => &Sgd { momentum: false },
        }
    }
}
