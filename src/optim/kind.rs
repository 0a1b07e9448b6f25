//! Optimizers by name, with the options that each has.

use super::Optimizer;
use super::coded::AdamW8Bit;
use super::muon::Muon;
use super::rules::{AdamW, Lion, Sgd};
use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, Serializer};

/// An optimizer, by its name in the JavaScript contract.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OptimizerKind {
    #[default]
    AdamW,
    AdamW8Bit,
    Lion,
    Muon,
    Sgd,
}

/// Most numbers of an optimizer.
pub const MOST_NUMBERS: usize = 6;

/// The numbers that some optimizers have and others have not; none: the optimizer has no such number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Numbers {
    pub beta1: Option<f64>,
    pub beta2: Option<f64>,
    pub epsilon: Option<f64>,
    pub momentum: Option<f64>,
}

/// By hand: what serde derives for an enum takes a kilobyte of the module.
impl Serialize for OptimizerKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for OptimizerKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| D::Error::custom(format!("there is no optimizer {name:?}")))
    }
}

impl OptimizerKind {
    pub const ALL: [Self; 5] = [Self::AdamW, Self::AdamW8Bit, Self::Lion, Self::Muon, Self::Sgd];

    pub const fn name(self) -> &'static str {
        match self {
            Self::AdamW => "adamw",
            Self::AdamW8Bit => "adamw8bit",
            Self::Lion => "lion",
            Self::Muon => "muon",
            Self::Sgd => "sgd",
        }
    }

    /// The numbers that it has, at their defaults: nanoGPT's for AdamW, the papers' for the others.
    pub const fn numbers(self) -> Numbers {
        let none = Numbers { beta1: None, beta2: None, epsilon: None, momentum: None };
        let adam = Numbers { beta1: Some(0.9), beta2: Some(0.95), epsilon: Some(1e-8), ..none };
        match self {
            Self::AdamW | Self::AdamW8Bit => adam,
            Self::Muon => Numbers { momentum: Some(0.95), ..adam },
            Self::Lion => Numbers { beta1: Some(0.9), beta2: Some(0.99), ..none },
            Self::Sgd => Numbers { momentum: Some(0.9), ..none },
        }
    }

    /// Those numbers in the uniform, each with 1 less it.
    pub fn in_order(self, given: Numbers) -> [[f32; 4]; MOST_NUMBERS] {
        let Numbers { beta1, beta2, epsilon, momentum } = given;
        let own = [beta1, beta2, epsilon, momentum].into_iter().flatten();
        let mut all = [[0.0; 4]; MOST_NUMBERS];
        for (place, number) in all.iter_mut().zip(own) {
            *place = [number as f32, (1.0 - number) as f32, 0.0, 0.0];
        }
        all
    }

    /// Factors and addends of what a step's decision carries: 1 − βⁿ of two rates.
    pub fn carried(self, given: Numbers) -> [f32; 4] {
        let beta1 = given.beta1.or(given.momentum).unwrap_or(0.0);
        let beta2 = given.beta2.unwrap_or(0.0);
        [beta1, beta2, 1.0 - beta1, 1.0 - beta2].map(|x| x as f32)
    }

    /// The optimizer with this momentum, if it has one; gradient descent with a momentum of 0 needs no state.
    pub fn optimizer(self, momentum: f64) -> Box<dyn Optimizer> {
        match self {
            Self::AdamW => Box::new(AdamW),
            Self::AdamW8Bit => Box::new(AdamW8Bit),
            Self::Lion => Box::new(Lion),
            Self::Muon => Box::new(Muon),
            Self::Sgd => Box::new(Sgd { momentum: momentum > 0.0 }),
        }
    }
}
