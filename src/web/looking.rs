//! `RawInterventions`, and the calls of `RawModel` that look inside.

use super::model::{RawModel, read};
use super::{JsResult, asking, json, to_js};
use crate::kernels::{KvCacheFormat, WeightFormat};
use crate::session::{
    AttributedLogit, Captured, Change, InferenceOptions, Intervention, Interventions, Place,
    Progress,
};
use js_sys::{Array, Float32Array, Function};
use serde::Deserialize;
use std::rc::Rc;
use wasm_bindgen::prelude::*;

/// The options of a capture.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CaptureText {
    /// Kinds and layers.
    captured: Vec<(Captured, usize)>,
    #[serde(default)]
    kv_cache: KvCacheFormat,
    #[serde(default)]
    weights: WeightFormat,
}

/// The options of an attribution.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AttributeText {
    position: usize,
    target: u32,
    against: Option<u32>,
    layers: Vec<usize>,
}

/// An intervention, as the page gives it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GivenIntervention {
    at: GivenPlace,
    layer: usize,
    #[serde(default)]
    head: usize,
    change: GivenChange,
    /// Its factor.
    by: f32,
    /// Where its numbers begin among all vectors, and how many there are.
    vector: [usize; 2],
    /// First positions, and how many from there on.
    positions: Vec<[usize; 2]>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum GivenPlace {
    Residual,
    Attention,
    Mlp,
    Head,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum GivenChange {
    Scale,
    Add,
    Project,
    Set,
}

impl GivenIntervention {
    fn of(self, vectors: &[f32]) -> Intervention {
        let Self { at, layer, head, change, by, vector: [begin, count], positions } = self;
        let own = vectors.iter().skip(begin).take(count).copied();
        let vector: Vec<f32> = own.collect();
        let change = match change {
            GivenChange::Scale => Change::Scale(by),
            GivenChange::Add => Change::Add { vector, strength: by },
            GivenChange::Project => Change::Project { vector, strength: by },
            GivenChange::Set => Change::Set(vector),
        };
        let place = match at {
            GivenPlace::Residual => Place::Residual(layer),
            GivenPlace::Attention => Place::Attention(layer),
            GivenPlace::Mlp => Place::Mlp(layer),
            GivenPlace::Head => Place::Head { layer, head },
        };
        let run = |[first, count]: [usize; 2]| first..first.saturating_add(count);
        Intervention { place, change, positions: positions.into_iter().map(run).collect() }
    }
}

/// What a call changes on the way to the logits: held until the call, or its generation, is over.
#[wasm_bindgen]
#[derive(Debug)]
pub struct RawInterventions {
    pub(super) held: Interventions,
}

/// Options with what a call changes.
pub(super) fn changed(
    options: InferenceOptions,
    by: &Option<RawInterventions>,
) -> InferenceOptions {
    by.as_ref().map_or(options, |by| by.held.over(options))
}

#[wasm_bindgen]
impl RawModel {
    /// What a call changes on the way to the logits: interventions as JSON, and their vectors, one after the other.
    pub fn interventions(&self, given: &str, vectors: &[f32]) -> JsResult<RawInterventions> {
        let given: Vec<GivenIntervention> = read("interventions", given)?;
        let all: Vec<_> = given.into_iter().map(|one| one.of(vectors)).collect();
        Ok(RawInterventions { held: self.model.interventions(&all).map_err(to_js)? })
    }

    /// Each of some kinds with each layer that has it. Kinds and result are JSON.
    #[wasm_bindgen(js_name = capturedOf)]
    pub fn captured_of(&self, kinds: &str) -> JsResult<String> {
        let kinds: Vec<Captured> = read("capture", kinds)?;
        json(&self.model.captured_of(&kinds).map_err(to_js)?)
    }

    /// What layers compute, in the order in which the options list it.
    pub async fn capture(
        &self,
        tokens: Vec<u32>,
        options: String,
        ask: Function,
        interventions: Option<RawInterventions>,
    ) -> JsResult<Array> {
        let (model, ask) = (Rc::clone(&self.model), asking(ask));
        let CaptureText { captured, kv_cache, weights } = read("capture", &options)?;
        let inference = InferenceOptions { kv_cache, weights, ..Default::default() };
        let inference = changed(inference, &interventions);
        let all = model.capture(&tokens, &captured, inference, Progress(&ask)).await;
        Ok(all.map_err(to_js)?.iter().map(|own| Float32Array::from(&own[..])).collect())
    }

    /// The gradient of a logit by the state after each of some layers.
    pub async fn attribute(
        &self,
        tokens: Vec<u32>,
        options: String,
        ask: Function,
    ) -> JsResult<Array> {
        let (model, ask) = (Rc::clone(&self.model), asking(ask));
        let AttributeText { position, target, against, layers } = read("attribute", &options)?;
        let logit = AttributedLogit { position, target, against };
        let all = model.attribute(&tokens, logit, &layers, Progress(&ask)).await;
        Ok(all.map_err(to_js)?.iter().map(|own| Float32Array::from(&own[..])).collect())
    }
}
