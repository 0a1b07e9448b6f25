//! Options of a generation, and what they must be.

use crate::decimal::Decimal;
use crate::error::{Error, Result};
use crate::kernels::{KvCacheFormat, WeightFormat};
use crate::lower::InferenceOptions;
use crate::random::split;
use crate::session::decode::interventions::Interventions;
use crate::session::step::Sampling;
use serde::Deserialize;

/// Options of `model.generate`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GenerateOptions {
    pub max_tokens: usize,
    /// How many of the last tokens of the prompt an earlier generation with these options has drawn, which
    /// this one continues.
    pub drawn: usize,
    /// 0 takes the likeliest token.
    pub temperature: f32,
    /// 0: off.
    pub top_k: u32,
    /// 1: off.
    pub top_p: f32,
    /// 0: off.
    pub min_p: f32,
    /// 1: off.
    pub repetition_penalty: f32,
    pub seed: u64,
    pub stop_tokens: Vec<u32>,
    /// How keys and values are kept between tokens.
    pub kv_cache: KvCacheFormat,
    /// How matrices are read.
    pub weights: WeightFormat,
    /// How many of the likeliest tokens each step tells; 0: none.
    pub alternatives: usize,
    /// One number for each token that is added to its logit after the penalty, or none at all. Negative infinity keeps
    /// a token out.
    #[serde(skip)]
    pub bias: Vec<f32>,
    /// What is changed on the way to the logits.
    #[serde(skip)]
    pub interventions: Option<Interventions>,
    /// Tokens that repeat the text are checked several at a time.
    pub prompt_lookup: bool,
    /// Each call of [`next`](super::Generation::next) draws one token, so that the bias may change before each.
    pub stepwise: bool,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self {
            max_tokens: 128,
            drawn: 0,
            temperature: 0.8,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            seed: 0,
            stop_tokens: Vec::new(),
            kv_cache: KvCacheFormat::F32,
            weights: WeightFormat::F32,
            alternatives: 0,
            bias: Vec::new(),
            interventions: None,
            prompt_lookup: false,
            stepwise: false,
        }
    }
}

impl GenerateOptions {
    pub(in crate::session) fn inference(&self) -> InferenceOptions {
        InferenceOptions {
            kv_cache: self.kv_cache,
            weights: self.weights,
            interventions: self.interventions.as_ref().map(Interventions::id),
        }
    }

    /// How tokens are drawn, from the beginning of a text on.
    pub(in crate::session) fn sampling(&self, top_k: u32) -> Sampling {
        Sampling {
            temperature: self.temperature,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            top_k,
            seed: split(self.seed),
            first_draw: 0,
        }
    }

    pub(in crate::session) fn validate(&self) -> Result<()> {
        let check = |good: bool, name: &str, value: f32, allowed: &str| {
            if good {
                Ok(())
            } else {
                Err(Error::options(format!("{name} is {}; it must be {allowed}", Decimal(value))))
            }
        };
        let t = self.temperature;
        check(t == 0.0 || (t.is_finite() && t >= 1e-3), "temperature", t, "0, or from 0.001 up")?;
        check(self.top_p > 0.0 && self.top_p <= 1.0, "topP", self.top_p, "above 0 and at most 1")?;
        check((0.0..1.0).contains(&self.min_p), "minP", self.min_p, "at least 0 and below 1")?;
        let penalty = self.repetition_penalty;
        let more = !self.bias.is_empty() || self.stepwise || self.alternatives > 0;
        if self.prompt_lookup && (more || penalty != 1.0) {
            return Err(Error::options(
                "promptLookup does not go with alternatives, bias and repetitionPenalty; leave these out",
            ));
        }
        check(
            penalty.is_finite() && penalty > 0.0,
            "repetitionPenalty",
            penalty,
            "above 0; 1 turns it off",
        )
    }
}
