//! What a rule is, and what users choose of it.

use super::stored::{StateSet, Trained};
use super::{RULES, number_names};
use crate::error::Result;
use crate::kernels::UpdateKernel;
use crate::params::Params;
use crate::plan::{Builder, MOST_NUMBERS};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use std::{fmt, result};

/// How gradients become updates. Before any rule come clipping by the global norm and the decision whether a step
/// updates.
#[derive(Debug)]
pub struct Rule {
    /// In the JavaScript contract.
    pub name: &'static str,
    /// What it does, for the documentation of the option.
    #[cfg_attr(
        not(feature = "testing"),
        allow(dead_code, reason = "the test of the written types reads it")
    )]
    pub what: &'static str,
    /// The default peak of the learning rate, and the default decay.
    pub learning_rate: f64,
    pub weight_decay: f64,
    /// Whether the decay adds to the gradient, as PyTorch's SGD has it. Else it is decoupled.
    #[cfg_attr(
        not(feature = "testing"),
        allow(dead_code, reason = "the test of the written types reads it")
    )]
    pub coupled: bool,
    /// What a user may choose besides, in the order in which kernels find them in the step.
    pub numbers: &'static [Number],
    /// Two numbers that a step carries over updates.
    pub carried: fn(&Optimizer) -> [Carried; 2],
    pub state: State,
    /// The most rows of the products in its plan.
    pub rows: fn(&Params) -> usize,
    /// Appends the updates of all trained weights: the optimizer, the layout of weights, the layout of gradients.
    pub updates: fn(&Optimizer, &mut Builder<'_>, &Params, &Params) -> Result<()>,
    pub kernels: &'static [&'static UpdateKernel],
}

/// What a rule has where its row says nothing of it.
pub(super) const BASE: Rule = Rule {
    name: "",
    what: "",
    learning_rate: 1e-3,
    weight_decay: 0.1,
    coupled: false,
    numbers: &[],
    carried: |_| [Carried::Rate(0.0); 2],
    state: State::AsGradients(|_| &[]),
    rows: |_| 1,
    updates: |_, _, _, _| Ok(()),
    kernels: &[],
};

/// A number of a rule.
#[derive(Clone, Copy, Debug)]
pub struct Number {
    /// In the JavaScript contract.
    pub name: &'static str,
    pub default: f64,
    pub bounds: Bounds,
    /// For the documentation of the option.
    #[cfg_attr(
        not(feature = "testing"),
        allow(dead_code, reason = "the test of the written types reads it")
    )]
    pub what: &'static str,
}

impl Number {
    pub const fn new(name: &'static str, default: f64, bounds: Bounds, what: &'static str) -> Self {
        Self { name, default, bounds, what }
    }
}

/// Which values a number may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bounds {
    /// At least 0 and below 1.
    Share,
    /// Above 0, and normal in f32.
    Positive,
    AtLeast(f64),
    AtMost(f64),
}

impl Bounds {
    /// The GPU computes in f32, and may take what is below its normal numbers for 0.
    pub fn allow(self, value: f64) -> bool {
        let finite = (value as f32).is_finite();
        match self {
            Self::Share => (0.0..1.0).contains(&value),
            Self::Positive => value > 0.0 && (value as f32).is_normal(),
            Self::AtLeast(low) => finite && value >= low,
            Self::AtMost(high) => finite && value <= high,
        }
    }

    /// What is allowed, in words.
    pub fn words(self) -> String {
        match self {
            Self::Share => "at least 0 and below 1".into(),
            Self::Positive => "a number from 1.2e-38 to 3.4e38".into(),
            Self::AtLeast(low) => format!("a number from {low:?} to 3.4e38"),
            Self::AtMost(high) => format!("a number from -3.4e38 to {high:?}"),
        }
    }
}

/// A number that a step's decision carries: 0 before the first update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Carried {
    /// 1 − βⁿ after n updates: the bias of a mean that keeps β of itself.
    Rate(f64),
    /// The updates made.
    Count,
}

impl Carried {
    /// By what an update multiplies it, and what it then adds.
    pub fn terms(self) -> [f64; 2] {
        match self {
            Self::Rate(beta) => [beta, 1.0 - beta],
            Self::Count => [1.0, 1.0],
        }
    }

    /// Whether a run can leave this value.
    pub fn allows(self, value: f32) -> bool {
        let most = if self == Self::Count { f32::MAX } else { 1.0 };
        (0.0..=most).contains(&value)
    }
}

/// The state that a rule keeps, and its layout.
#[derive(Clone, Copy, Debug)]
pub enum State {
    /// The same sets of every parameter, each laid out as the gradients are.
    AsGradients(fn(&Optimizer) -> &'static [StateSet]),
    /// Sets of each parameter, laid out one parameter after the other.
    PerTensor(fn(&Trained) -> &'static [StateSet]),
}

/// A rule with its numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Optimizer {
    pub rule: &'static Rule,
    /// By the rule's own order.
    numbers: [f64; MOST_NUMBERS],
}

impl Optimizer {
    /// A rule with the numbers that are given, and its defaults for the others.
    pub fn new(rule: &'static Rule, given: &Numbers) -> Self {
        let mut numbers = [0.0; MOST_NUMBERS];
        for (number, own) in numbers.iter_mut().zip(rule.numbers) {
            *number = given.get(own.name).unwrap_or(own.default);
        }
        Self { rule, numbers }
    }

    /// The numbers by name.
    pub fn numbers(&self) -> impl Iterator<Item = (&'static str, f64)> + use<'_> {
        self.rule.numbers.iter().map(|number| number.name).zip(self.numbers)
    }

    /// A number of the rule; 0 where it has none of this name.
    pub fn number(&self, name: &str) -> f64 {
        self.numbers().find(|(own, _)| *own == name).map_or(0.0, |(_, value)| value)
    }

    /// What [`Step::carried`](crate::plan::Step) is.
    pub fn carried_terms(&self) -> [f32; 4] {
        let [[factor1, term1], [factor2, term2]] = (self.rule.carried)(self).map(Carried::terms);
        [factor1, factor2, term1, term2].map(|x| x as f32)
    }

    /// What [`Step::numbers`](crate::plan::Step) are.
    pub fn uniform(&self) -> [[f32; 4]; MOST_NUMBERS] {
        self.numbers.map(|number| [number as f32, (1.0 - number) as f32, 0.0, 0.0])
    }

    /// The sets of a parameter's state, zero before the first step.
    pub fn state(&self, trained: &Trained) -> &'static [StateSet] {
        match self.rule.state {
            State::AsGradients(sets) => sets(self),
            State::PerTensor(sets) => sets(trained),
        }
    }
}

impl Default for Optimizer {
    fn default() -> Self {
        Self::new(RULES[0], &Numbers::default())
    }
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Rule {
    /// The rule of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        RULES.iter().copied().find(|rule| rule.name == name)
    }
}

impl Default for &'static Rule {
    fn default() -> Self {
        RULES[0]
    }
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}

impl<'de> Deserialize<'de> for &'static Rule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> result::Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let missing = || D::Error::custom(format!("there is no optimizer {name:?}"));
        Rule::named(&name).ok_or_else(missing)
    }
}

/// Numbers that were given, by name. In JSON they stand among the other options.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Numbers(Vec<(&'static str, f64)>);

impl Numbers {
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(own, _)| *own == name).map(|(_, value)| *value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&'static str, f64)> + use<'_> {
        self.0.iter().copied()
    }
}

impl FromIterator<(&'static str, f64)> for Numbers {
    fn from_iter<I: IntoIterator<Item = (&'static str, f64)>>(numbers: I) -> Self {
        Self(numbers.into_iter().collect())
    }
}

impl Serialize for Numbers {
    fn serialize<S: Serializer>(&self, serializer: S) -> result::Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Numbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> result::Result<Self, D::Error> {
        struct GivenNumbers;

        impl<'de> Visitor<'de> for GivenNumbers {
            type Value = Numbers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("numbers of an optimizer")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> result::Result<Numbers, M::Error> {
                let mut numbers = vec![];
                while let Some((name, value)) = map.next_entry::<String, Option<f64>>()? {
                    let known = number_names().iter().find(|known| **known == name);
                    numbers.extend(known.copied().zip(value));
                }
                Ok(Numbers(numbers))
            }
        }

        deserializer.deserialize_struct("Numbers", number_names(), GivenNumbers)
    }
}
