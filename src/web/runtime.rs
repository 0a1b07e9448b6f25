//! `RawRuntime`: a device.

use super::{JsResult, gpu_adapter, json, to_js};
use crate::error::{Error, ErrorCode, Result};
use crate::gpu::{BufferId, DeviceRequest, Gpu, LimitsRequest, RequestedFeatures, WgpuDevice};
use crate::kernels::TunedProduct;
use crate::session::Operations;
use js_sys::Promise;
use serde::Deserialize;
use serde_json::Value;
use std::cell::RefCell;
use std::rc::Rc;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::future_to_promise;

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RuntimeOptions {
    /// A name or an object. Read as an untagged enum it would cost 6 KB: no other type of the module needs that code.
    limits: Option<Value>,
    features: FeatureOptions,
    memory_budget: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FeatureOptions {
    subgroups: bool,
    f16: bool,
    timestamps: bool,
    subgroup_matrix: bool,
}

impl Default for FeatureOptions {
    fn default() -> Self {
        Self { subgroups: true, f16: true, timestamps: true, subgroup_matrix: true }
    }
}

fn request(options: &str) -> Result<DeviceRequest> {
    let options: RuntimeOptions = serde_json::from_str(options)
        .map_err(|e| Error::options(format!("runtime options: {e}")))?;
    let limits = options.limits.as_ref().map_or(Ok(LimitsRequest::Adapter), limits)?;
    let FeatureOptions { subgroups, f16, timestamps, subgroup_matrix } = options.features;
    let features = RequestedFeatures { subgroups, f16, timestamps, subgroup_matrix };
    let memory_budget = options.memory_budget;
    Ok(DeviceRequest { limits, features, memory_budget, ..DeviceRequest::default() })
}

fn limits(given: &Value) -> Result<LimitsRequest> {
    let caps = match given {
        Value::String(name) if name == "adapter" => return Ok(LimitsRequest::Adapter),
        Value::String(name) if name == "default" => return Ok(LimitsRequest::Default),
        Value::Object(caps) => caps.iter().map(|(name, cap)| Some((name.clone(), cap.as_u64()?))),
        _ => return Err(limits_are(given)),
    };
    let caps: Option<_> = caps.collect();
    Ok(LimitsRequest::Capped(caps.ok_or_else(|| limits_are(given))?))
}

fn limits_are(given: &Value) -> Error {
    Error::options(format!(
        "limits is {given}; it must be \"adapter\", \"default\" or an object of caps"
    ))
}

/// A device and its capabilities.
#[wasm_bindgen]
#[derive(Debug)]
pub struct RawRuntime {
    open: RefCell<Option<Open>>,
}

#[derive(Debug)]
struct Open {
    device: Rc<WgpuDevice>,
    operations: Rc<Operations>,
}

impl RawRuntime {
    fn open<T>(&self, part: impl FnOnce(&Open) -> T) -> JsResult<T> {
        let freed = || {
            to_js(Error::new(ErrorCode::Freed, "this runtime has been destroyed; create another"))
        };
        self.open.borrow().as_ref().map(part).ok_or_else(freed)
    }

    /// The device.
    pub fn device_rc(&self) -> JsResult<Rc<WgpuDevice>> {
        self.open(|open| Rc::clone(&open.device))
    }

    pub(crate) fn operations(&self) -> JsResult<Rc<Operations>> {
        self.open(|open| Rc::clone(&open.operations))
    }

    pub(crate) fn gpu(&self) -> JsResult<Rc<dyn Gpu>> {
        Ok(self.device_rc()?)
    }
}

#[wasm_bindgen]
impl RawRuntime {
    /// Opens a device on an adapter that this GPU object (`navigator.gpu`, or a stand-in such as Dawn's in Node) gave.
    pub async fn create(gpu: JsValue, adapter: JsValue, options: String) -> JsResult<RawRuntime> {
        let request = request(&options).map_err(to_js)?;
        let device = gpu_adapter::open(gpu.unchecked_ref(), adapter.unchecked_ref(), &request)
            .await
            .map_err(to_js)?;
        let operations = Rc::new(Operations::new(&(Rc::clone(&device) as Rc<dyn Gpu>)));
        Ok(Self { open: RefCell::new(Some(Open { device, operations })) })
    }

    /// The raw GPUDevice.
    pub fn device(&self) -> JsResult<JsValue> {
        let device = self.device_rc()?;
        let raw = device.raw().as_webgpu().map(|raw| AsRef::<JsValue>::as_ref(raw).clone());
        raw.ok_or_else(|| to_js(Error::internal("the device is not a WebGPU device")))
    }

    /// The raw GPUBuffer of a number.
    pub fn buffer(&self, id: u32) -> JsResult<JsValue> {
        let buffer = self.device_rc()?.raw_buffer(BufferId(id)).map_err(to_js)?;
        let raw = buffer.as_webgpu().map(|raw| AsRef::<JsValue>::as_ref(raw).clone());
        raw.ok_or_else(|| to_js(Error::internal("the buffer is not a WebGPU buffer")))
    }

    pub fn capabilities(&self) -> JsResult<String> {
        json(self.device_rc()?.capabilities())
    }

    /// A promise of `{ reason, message }`, once the device is lost. It borrows nothing: the object may be freed before.
    pub fn lost(&self) -> JsResult<Promise> {
        let waiting = self.device_rc()?.when_lost();
        Ok(future_to_promise(async move {
            let message = waiting.await;
            let reason = if message.starts_with("Destroyed") { "destroyed" } else { "unknown" };
            json(&serde_json::json!({ "reason": reason, "message": message })).map(JsValue::from)
        }))
    }

    /// Has products measured, except those that [`RawRuntime::tuned`] once gave for this adapter.
    pub fn tune(&self, known: &[f64]) -> JsResult<()> {
        self.device_rc()?.set_tuned(Some(TunedProduct::from_numbers(known)));
        Ok(())
    }

    /// What has been measured, as numbers.
    pub fn tuned(&self) -> JsResult<Vec<f64>> {
        Ok(TunedProduct::to_numbers(&self.device_rc()?.tuned().unwrap_or_default()))
    }

    /// Numbers of a product in `tuned`, how many of the first are its shape's, and the format's number.
    #[wasm_bindgen(js_name = tunedFormat)]
    pub fn tuned_format() -> Vec<f64> {
        TunedProduct::FORMAT.map(|x| x as f64).to_vec()
    }

    /// The crate's version. Measurements kept between sessions carry it.
    pub fn version() -> String {
        env!("CARGO_PKG_VERSION").into()
    }

    pub fn counters(&self) -> JsResult<String> {
        let mut counters = serde_json::to_value(self.device_rc()?.counters())
            .map_err(|e| to_js(Error::internal(format!("counters: {e}"))))?;
        counters["wasmBytes"] = (core::arch::wasm32::memory_size::<0>() << 16).into();
        json(&counters)
    }

    pub fn release(&self) {
        if let Some(Open { device, operations }) = self.open.replace(None) {
            drop(operations);
            device.destroy();
        }
    }
}
