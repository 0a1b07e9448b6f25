//! The tests for a browser, in a module with all of `tinyloom::web`.

use crate::config::ModelConfig;
use crate::error::Error;
use crate::gpu::Gpu;
use crate::session::{Model, NO_PROGRESS};
use crate::{self as testing, Level, candidates, candidates_linear, candidates_tensors};
use std::rc::Rc;
use tinyloom::web::runtime::RawRuntime;
use tinyloom::web::{JsResult, json, to_js};
use wasm_bindgen::prelude::*;

/// JSON array of the cases' names: the everyday ones, or with `full` all.
#[wasm_bindgen]
pub fn testing_cases(full: bool) -> JsResult<String> {
    let level = if full { Level::Full } else { Level::Everyday };
    json(&testing::cases(level).iter().map(|case| case.name.clone()).collect::<Vec<_>>())
}

/// What a case left on the devices of one adapter.
#[wasm_bindgen]
#[derive(Debug, Default)]
pub struct TestingResults(testing::Results);

#[wasm_bindgen]
impl TestingResults {
    #[wasm_bindgen(constructor)]
    pub fn new() -> Self {
        Self::default()
    }

    /// What runs from now on runs on another device.
    #[wasm_bindgen(js_name = nextDevice)]
    pub fn next_device(&self) {
        self.0.next_device();
    }
}

/// Runs a case with random data from `seed`, and gives its report as JSON. What an earlier device has
/// run of the case with `results` and that seed is not run again. `others`: a [`Others`](crate::Others)
/// in lower case.
#[wasm_bindgen]
pub async fn testing_run(
    runtime: &RawRuntime,
    name: String,
    seed: f64,
    results: &TestingResults,
    others: &str,
) -> JsResult<String> {
    let device = runtime.device_rc()?;
    let others = others.parse().map_err(to_js)?;
    let mode = testing::Mode { results: Some(results.0.clone()), others };
    json(&testing::run(&device, &name, seed as u64, mode).await)
}

/// What a case depends on, on this device, as JSON: a [`Listing`](crate::Listing), or null where there is no such case.
#[wasm_bindgen]
pub async fn testing_list(runtime: &RawRuntime, name: String, seed: f64) -> JsResult<String> {
    let device = runtime.device_rc()?;
    json(&testing::list(&device, &name, seed as u64).await)
}

/// The texts with matrices of subgroups that selection gives over the table, as JSON: names and texts.
#[wasm_bindgen]
pub fn testing_matrix_texts() -> JsResult<String> {
    json(&testing::matrix_texts())
}

/// The training kernels of an [`AttentionWork`] as JSON, for the benchmark.
#[wasm_bindgen]
pub fn testing_attention(runtime: &RawRuntime, work: &str) -> JsResult<String> {
    let device = runtime.device_rc()?;
    json(&candidates::attention(device.capabilities(), parse(work)?).map_err(to_js)?)
}

/// The kernels of a decoded token over a cache of that many tokens, as JSON.
#[wasm_bindgen]
pub fn testing_decode(runtime: &RawRuntime, work: &str) -> JsResult<String> {
    let device = runtime.device_rc()?;
    json(&candidates::decode(device.capabilities(), parse(work)?).map_err(to_js)?)
}

/// Attention over tensors in each storage and kind of mask, as JSON.
#[wasm_bindgen]
pub fn testing_tensors(runtime: &RawRuntime, work: &str) -> JsResult<String> {
    let device = runtime.device_rc()?;
    json(&candidates_tensors::tensors(device.capabilities(), parse(work)?).map_err(to_js)?)
}

/// A product in every tile and split, as JSON.
#[wasm_bindgen]
pub fn testing_linear(runtime: &RawRuntime, work: &str) -> JsResult<String> {
    let device = runtime.device_rc()?;
    json(&candidates_linear::linear(device.capabilities(), &parse(work)?).map_err(to_js)?)
}

/// The kernels of a token decoded after `context` others, with their times, as JSON.
#[wasm_bindgen]
pub async fn testing_decode_profile(
    runtime: &RawRuntime,
    config: String,
    context: usize,
) -> JsResult<String> {
    let gpu: Rc<dyn Gpu> = runtime.device_rc()?;
    let config = ModelConfig::from_json(&config).map_err(to_js)?;
    let model = Model::create(&gpu, config, 1, NO_PROGRESS).await.map_err(to_js)?;
    json(&model.profile_decode(context).await.map_err(to_js)?)
}

/// Times the last chunk of a prompt of `tokens` tokens. Gives its kernels and their times as JSON. `options` is an
/// `InferenceOptions` as JSON.
#[wasm_bindgen]
pub async fn testing_prompt_profile(
    runtime: &RawRuntime,
    config: String,
    tokens: usize,
    options: String,
) -> JsResult<String> {
    let gpu: Rc<dyn Gpu> = runtime.device_rc()?;
    let config = ModelConfig::from_json(&config).map_err(to_js)?;
    let model = Model::create(&gpu, config, 1, NO_PROGRESS).await.map_err(to_js)?;
    json(&model.profile_prompt(tokens, parse(&options)?).await.map_err(to_js)?)
}

fn parse<T: serde::de::DeserializeOwned>(work: &str) -> JsResult<T> {
    serde_json::from_str(work).map_err(|e| to_js(Error::options(format!("work: {e}"))))
}
