//! Options of a trainer, as in the JavaScript contract.

use crate::config::DropoutRates;
use crate::error::{Error, Result};
use crate::kernels::{Constant, Objective, Steering};
use crate::lower::TrainChoices;
use crate::optim::{Bounds, Numbers, Optimizer, Rule};
use crate::schedule::{Schedule, ScheduleKind};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt::Debug;

/// Most micro-steps of a step.
const MOST_ACCUMULATION: u64 = 1 << 16;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TrainerOptions {
    /// States of version 0.1.0 do not name it.
    pub optimizer: &'static Rule,
    pub learning_rate: f64,
    pub schedule: ScheduleKind,
    pub warmup_steps: u64,
    pub total_steps: Option<u64>,
    pub min_learning_rate: Option<f64>,
    pub weight_decay: f64,
    /// The optimizer's numbers that are given.
    #[serde(flatten)]
    pub numbers: Numbers,
    /// None: no clipping.
    pub max_grad_norm: Option<f64>,
    pub gradient_accumulation: u64,
    pub tokens_per_step: usize,
    /// Activations are computed again in the backward pass instead of kept: less memory, more time.
    pub recompute: bool,
    pub precision: Precision,
    /// Only this many of the last layers are trained, and what follows them. None: all.
    pub last_layers: Option<usize>,
    /// The share of each target's probability that the loss spreads over the vocabulary.
    pub label_smoothing: f64,
    /// Factor of the squared logsumexp of the logits in the loss.
    pub z_loss: f64,
    /// What takes the place of the config's rates.
    pub dropout: DropoutOptions,
    /// How much of the average of weights a step keeps; none: there is no average.
    pub ema: Option<f64>,
    pub seed: u64,
}

/// Rates of dropout; none: the config's. In JSON an object, or a number for all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Value")]
pub struct DropoutOptions {
    pub embedding: Option<f64>,
    pub attention: Option<f64>,
    pub residual: Option<f64>,
}

impl From<Value> for DropoutOptions {
    fn from(value: Value) -> Self {
        let [embedding, attention, residual] = ["embedding", "attention", "residual"]
            .map(|name| value.as_f64().or_else(|| value.get(name)?.as_f64()));
        Self { embedding, attention, residual }
    }
}

impl DropoutOptions {
    fn over(self, config: DropoutRates) -> DropoutRates {
        DropoutRates {
            embedding: self.embedding.unwrap_or(config.embedding),
            attention: self.attention.unwrap_or(config.attention),
            residual: self.residual.unwrap_or(config.residual),
        }
    }
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
            optimizer: Default::default(),
            learning_rate: 1e-3,
            schedule: ScheduleKind::Cosine,
            warmup_steps: 20,
            total_steps: None,
            min_learning_rate: None,
            weight_decay: 0.1,
            numbers: Numbers::default(),
            max_grad_norm: Some(1.0),
            gradient_accumulation: 1,
            tokens_per_step: 1024,
            recompute: false,
            precision: Precision::F32,
            last_layers: None,
            label_smoothing: 0.0,
            z_loss: 0.0,
            dropout: DropoutOptions::default(),
            ema: None,
            seed: 0,
        }
    }
}

impl TrainerOptions {
    pub fn from_json(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|e| Error::options(format!("trainer options: {e}")))
    }

    /// What plans depend on, for a model whose config has these rates of dropout, and for a loss that is steered so.
    pub(in crate::session) fn choices(
        &self,
        dropout: DropoutRates,
        steering: Steering,
    ) -> TrainChoices {
        TrainChoices {
            tokens: self.tokens_per_step,
            recompute: self.recompute,
            mixed: self.precision == Precision::Mixed,
            last_layers: self.last_layers,
            objective: Objective {
                label_smoothing: Constant(self.label_smoothing),
                z_loss: Constant(self.z_loss),
                steering,
            },
            dropout: self.dropout.over(dropout),
            optimizer: self.optimizer(),
            average: self.ema.map(Constant),
        }
    }

    /// The optimizer with its numbers, as given or by default.
    pub(in crate::session) fn optimizer(&self) -> Optimizer {
        Optimizer::new(self.optimizer, &self.numbers)
    }

    /// These options with every default filled in, for a model whose config has these rates of dropout.
    pub(in crate::session) fn filled(self, dropout: DropoutRates) -> Self {
        let numbers = self.optimizer().numbers().collect();
        let DropoutRates { embedding, attention, residual } = self.dropout.over(dropout);
        let [embedding, attention, residual] = [embedding, attention, residual].map(Some);
        let dropout = DropoutOptions { embedding, attention, residual };
        Self { numbers, dropout, ..self }
    }

    /// Checks every value and gives the schedule.
    pub(in crate::session) fn validate(&self) -> Result<Schedule> {
        self.check_numbers()?;
        let rate = self.learning_rate;
        check(normal(rate), "learningRate", &rate, &Bounds::Positive.words())?;
        let decay = self.weight_decay;
        check(
            (decay as f32).is_finite() && decay >= 0.0,
            "weightDecay",
            &decay,
            "a number from 0 to 3.4e38",
        )?;
        let smoothing = self.label_smoothing;
        check((0.0..1.0).contains(&smoothing), "labelSmoothing", &smoothing, BELOW_ONE)?;
        let DropoutOptions { embedding, attention, residual } = self.dropout;
        for (name, rate) in [
            ("dropout.embedding", embedding),
            ("dropout.attention", attention),
            ("dropout.residual", residual),
        ] {
            let rate = rate.unwrap_or(0.0);
            check((0.0..1.0).contains(&rate), name, &rate, BELOW_ONE)?;
        }
        let factor = self.z_loss;
        let allowed = "0, or a number from 1.2e-38 to 1.7e38";
        // The gradient's kernel has it twice.
        let good = factor == 0.0 || (normal(factor) && normal(2.0 * factor));
        check(good, "zLoss", &factor, allowed)?;
        if let Some(kept) = self.ema {
            check((0.0..1.0).contains(&kept), "ema", &kept, BELOW_ONE)?;
        }
        if let Some(norm) = self.max_grad_norm {
            check(
                normal(norm),
                "maxGradNorm",
                &norm,
                "a number from 1.2e-38 to 3.4e38, or null for no clipping",
            )?;
        }
        let accumulation = self.gradient_accumulation;
        check(
            (1..=MOST_ACCUMULATION).contains(&accumulation),
            "gradientAccumulation",
            &accumulation,
            "from 1 to 65536",
        )?;
        let tokens = self.tokens_per_step;
        check((1..=1 << 24).contains(&tokens), "tokensPerStep", &tokens, "from 1 to 16777216")?;
        Schedule::new(
            self.schedule,
            self.learning_rate,
            self.warmup_steps,
            self.total_steps,
            self.min_learning_rate,
        )
    }

    /// Checks the optimizer's numbers, and refuses those that it does not have.
    fn check_numbers(&self) -> Result<()> {
        for (name, value) in self.numbers.iter() {
            let own = self.optimizer.numbers.iter().find(|number| number.name == name);
            let Some(number) = own else {
                let optimizer = self.optimizer.name;
                return Err(Error::options(format!(
                    "{name} is {value}; the optimizer \"{optimizer}\" has no {name}: leave it out"
                )));
            };
            check(number.bounds.allow(value), name, &value, &number.bounds.words())?;
        }
        Ok(())
    }
}

const BELOW_ONE: &str = "at least 0 and below 1";

pub(super) fn normal(value: f64) -> bool {
    Bounds::Positive.allow(value)
}

/// Refuses a value that is not good. `Debug` writes 1e300 in five characters, and `Display` in 301.
pub(super) fn check(good: bool, name: &str, value: &dyn Debug, allowed: &str) -> Result<()> {
    if good {
        Ok(())
    } else {
        Err(Error::options(format!("{name} is {value:?}; it must be {allowed}")))
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
            let numbers = [("epsilon", epsilon)].into_iter().collect();
            assert!(refused(TrainerOptions { numbers, ..default() }).contains("epsilon is"));
        }
        for norm in [0.0, 1e-46, 1e39] {
            let options = TrainerOptions { max_grad_norm: Some(norm), ..default() };
            assert!(refused(options).contains("maxGradNorm is"));
        }
        for learning_rate in [0.0, -1.0, 1e-46, 1e-39, 1e39, f64::NAN] {
            let options = TrainerOptions { learning_rate, ..default() };
            assert!(refused(options).contains("learningRate is"));
        }
        let far = refused(TrainerOptions { learning_rate: 1e300, ..default() });
        assert!(far.contains("is 1e300;"), "{far}");
        let options = TrainerOptions { weight_decay: 1e39, ..default() };
        assert!(refused(options).contains("weightDecay is"));
        for z_loss in [-1.0, 1e-46, 1.8e38, 1e39, f64::NAN] {
            let message = refused(TrainerOptions { z_loss, ..default() });
            assert!(message.contains("zLoss is") && message.contains("to 1.7e38"), "{message}");
        }
        TrainerOptions { z_loss: 1.7e38, ..default() }.validate().unwrap();
        for label_smoothing in [-0.1, 1.0, f64::NAN] {
            let options = TrainerOptions { label_smoothing, ..default() };
            assert!(refused(options).contains("labelSmoothing is"));
        }
        let options = TrainerOptions { gradient_accumulation: 1 << 32, ..default() };
        assert!(refused(options).contains("gradientAccumulation is"));
        let numbers = [("epsilon", 1.2e-38)].into_iter().collect();
        TrainerOptions { numbers, max_grad_norm: Some(1e30), ..default() }.validate().unwrap();
    }

    #[test]
    fn numbers_that_the_optimizer_lacks_are_refused_and_the_others_filled() {
        let of = |optimizer: &str, numbers: &[(&'static str, f64)]| TrainerOptions {
            optimizer: Rule::named(optimizer).unwrap(),
            numbers: numbers.iter().copied().collect(),
            ..TrainerOptions::default()
        };
        for (options, name) in [
            (of("sgd", &[("beta2", 0.9)]), "beta2"),
            (of("lion", &[("epsilon", 1e-8)]), "epsilon"),
            (of("adamw", &[("momentum", 0.9)]), "momentum"),
        ] {
            let message = options.validate().unwrap_err().message;
            let wanted = format!("\"{}\" has no {name}", options.optimizer.name);
            assert!(message.contains(&wanted), "{message}");
        }
        let too_much = of("sgd", &[("momentum", 1.0)]);
        assert!(too_much.validate().unwrap_err().message.contains("momentum is 1"));
        let filled = of("lion", &[]).filled(DropoutRates::default());
        assert_eq!(filled.numbers, [("beta1", 0.9), ("beta2", 0.99)].into_iter().collect());
        filled.validate().unwrap();
        let filled = of("sgd", &[]).filled(DropoutRates::default());
        let text = serde_json::to_string(&filled).unwrap();
        assert!(
            text.contains(r#""optimizer":"sgd""#) && text.contains(r#""momentum":0.9"#),
            "{text}"
        );
        assert!(!text.contains("beta1") && !text.contains("epsilon"), "{text}");
        assert_eq!(TrainerOptions::from_json(&text).unwrap(), filled);
        let unknown = TrainerOptions::from_json(r#"{"optimizer":"adam"}"#).unwrap_err().message;
        assert!(unknown.contains("adam"), "{unknown}");
        let unknown = TrainerOptions::from_json(r#"{"beta3":0.5}"#).unwrap_err().message;
        assert!(unknown.contains("unknown field `beta3`"), "{unknown}");
        // In the order in which earlier builds wrote them.
        let text = serde_json::to_string(&of("muon", &[]).filled(DropoutRates::default())).unwrap();
        let numbers =
            r#""weightDecay":0.1,"beta1":0.9,"beta2":0.95,"epsilon":1e-8,"momentum":0.95,"#;
        assert!(text.contains(numbers), "{text}");
        // As version 0.1.0 saved them.
        let old = TrainerOptions::from_json(r#"{"beta1":0.8,"beta2":0.9,"epsilon":1e-7}"#).unwrap();
        assert_eq!((old.optimizer.name, old.numbers.get("beta1")), ("adamw", Some(0.8)));
        old.validate().unwrap();
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
