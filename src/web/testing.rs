//! The kernel tests for a browser, compiled only with the feature `testing`.

use super::runtime::RawRuntime;
use super::{JsResult, json, to_js};
use crate::error::Error;
use crate::gpu::Gpu;
use crate::testing;
use wasm_bindgen::prelude::*;

/// JSON array of the cases' names.
#[wasm_bindgen]
pub fn testing_cases() -> JsResult<String> {
    json(&testing::cases().iter().map(|case| case.name.clone()).collect::<Vec<_>>())
}

/// Runs a case with a fresh seed, or with `seed`, and gives its report as JSON.
#[wasm_bindgen]
pub async fn testing_run(
    runtime: &RawRuntime,
    name: String,
    seed: Option<f64>,
) -> JsResult<String> {
    let device = runtime.device_rc()?;
    let seed = seed.unwrap_or_else(|| (js_sys::Math::random() * 2f64.powi(53)).floor());
    json(&testing::run(&device, &name, seed as u64).await)
}

/// The kernels of an [`AttentionWork`](testing::candidates::AttentionWork) as JSON, for the
/// benchmark.
#[wasm_bindgen]
pub fn testing_attention(runtime: &RawRuntime, work: &str) -> JsResult<String> {
    let work =
        serde_json::from_str(work).map_err(|e| to_js(Error::options(format!("work: {e}"))))?;
    let device = runtime.device_rc()?;
    json(&testing::candidates::attention(device.capabilities(), work).map_err(to_js)?)
}
