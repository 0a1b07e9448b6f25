//! The browser's adapter: what wgpu cannot tell of it, and a device with subgroups.
//!
//! wgpu 30 does not know WebGPU's `subgroups` feature and so cannot request it
//! (<https://github.com/gfx-rs/wgpu/issues/10146>). Until it does, this file reads the
//! adapter's facts and hands a stand-in for it to wgpu through a stand-in for `navigator.gpu` that
//! lives for one call. The stand-in's `requestDevice` adds the feature, and gives a device or a
//! rejection whatever the adapter's own does: an exception inside wgpu would end the module. Delete
//! the feature's part when wgpu can ask by itself.

use crate::caps::AdapterName;
use crate::error::{Error, ErrorCode, Result};
use crate::gpu::{AdapterFacts, DeviceRequest, WgpuDevice};
use js_sys::{Array, Function, Object, Promise, Reflect};
use std::rc::Rc;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::{JsFuture, future_to_promise};

/// Opens a device on an adapter of this GPU object.
pub(super) async fn open(
    gpu: &JsValue,
    adapter: &JsValue,
    request: &DeviceRequest,
) -> Result<Rc<WgpuDevice>> {
    let facts = facts(gpu, adapter);
    let adapter = checked(adapter, facts.subgroups && request.features.subgroups)?;
    let instance =
        instance_with(&adapter).map_err(|e| thrown("standing in for navigator.gpu", &e))?;
    let adapter = WgpuDevice::adapter(&instance, request).await?;
    WgpuDevice::from_adapter(&adapter, &facts, request, now).await
}

/// Milliseconds by the page's, worker's or Node's own clock.
fn now() -> f64 {
    let performance = get(&js_sys::global(), "performance");
    method(&performance, "now")
        .and_then(|clock| clock.call0(&performance).ok())
        .and_then(|ms| ms.as_f64())
        .unwrap_or_else(js_sys::Date::now)
}

fn thrown(doing: &str, error: &JsValue) -> Error {
    Error::internal(format!("{doing} failed: {error:?}"))
}

fn get(object: &JsValue, name: &str) -> JsValue {
    Reflect::get(object, &name.into()).unwrap_or(JsValue::UNDEFINED)
}

fn method(object: &JsValue, name: &str) -> Option<Function> {
    get(object, name).dyn_into().ok()
}

fn unavailable(reason: String) -> Error {
    Error::new(ErrorCode::AdapterUnavailable, format!("no WebGPU adapter: {reason}"))
}

fn facts(gpu: &JsValue, adapter: &JsValue) -> AdapterFacts {
    let info = get(adapter, "info");
    let text = |name: &str| get(&info, name).as_string().unwrap_or_default();
    let size = |name: &str| get(&info, name).as_f64().unwrap_or(0.0) as u32;
    let truth = |object: &JsValue, name: &str| get(object, name).as_bool().unwrap_or(false);
    let subgroups = has(&get(adapter, "features"), "subgroups");
    AdapterFacts {
        name: Some(AdapterName {
            vendor: text("vendor"),
            architecture: text("architecture"),
            device: text("device"),
            description: text("description"),
        }),
        subgroups,
        subgroup_id: subgroups && has(&get(gpu, "wgslLanguageFeatures"), "subgroup_id"),
        subgroup_size: [size("subgroupMinSize"), size("subgroupMaxSize")],
        fallback: truth(&info, "isFallbackAdapter") || truth(adapter, "isFallbackAdapter"),
    }
}

/// Membership in one of WebGPU's set-like objects.
fn has(set: &JsValue, name: &str) -> bool {
    let test = method(set, "has");
    test.and_then(|test| test.call1(set, &name.into()).ok()).is_some_and(|found| found.is_truthy())
}

/// A stand-in with what wgpu reads of an adapter, once it is there.
fn checked(adapter: &JsValue, subgroups: bool) -> Result<JsValue> {
    let stand_in = Object::new();
    let set = |name: &str, value: &JsValue| {
        Reflect::set(&stand_in, &name.into(), value).map_err(|e| thrown("setting a property", &e))
    };
    for name in ["info", "features", "limits"] {
        let value = get(adapter, name);
        if !value.is_object() {
            return Err(unavailable(format!("requestAdapter gave an object without {name}")));
        }
        set(name, &value)?;
    }
    let info = get(adapter, "info");
    for name in ["vendor", "architecture", "device", "description"] {
        if !get(&info, name).is_string() {
            return Err(unavailable(format!("the adapter's info has no text {name}")));
        }
    }
    let missing = |name: &str| unavailable(format!("the adapter has no method {name}"));
    method(&get(adapter, "features"), "has").ok_or_else(|| missing("features.has"))?;
    let own = method(adapter, "requestDevice").ok_or_else(|| missing("requestDevice"))?;
    let this = adapter.clone();
    let request = Closure::once_into_js(move |descriptor: JsValue| -> Promise {
        future_to_promise(async move {
            if subgroups {
                let features = Array::from(&get(&descriptor, "requiredFeatures"));
                features.push(&"subgroups".into());
                Reflect::set(&descriptor, &"requiredFeatures".into(), &features)?;
            }
            let asked = own.call1(&this, &descriptor)?;
            let device = JsFuture::from(Promise::resolve(&asked)).await?;
            if get(&device, "queue").is_object() && get(&device, "lost").is_object() {
                return Ok(device);
            }
            Err(js_sys::Error::new("requestDevice gave no GPUDevice").into())
        })
    });
    set("requestDevice", &request)?;
    Ok(stand_in.into())
}

/// A wgpu instance whose GPU object answers `requestAdapter` with this adapter.
fn instance_with(adapter: &JsValue) -> std::result::Result<wgpu::Instance, JsValue> {
    let stand_in = Object::new();
    let adapter = adapter.clone();
    let answer = Closure::once_into_js(move |_options: JsValue| Promise::resolve(&adapter));
    Reflect::set(&stand_in, &"requestAdapter".into(), &answer)?;

    let navigator: Object = get(&js_sys::global(), "navigator").dyn_into()?;
    let before = Object::get_own_property_descriptor(&navigator, &"gpu".into());
    let property = Object::new();
    Reflect::set(&property, &"value".into(), &stand_in)?;
    Reflect::set(&property, &"configurable".into(), &JsValue::TRUE)?;
    Object::define_property(&navigator, &"gpu".into(), &property);
    let instance = wgpu::Instance::default();
    if before.is_undefined() {
        Reflect::delete_property(&navigator, &"gpu".into())?;
    } else {
        Object::define_property(&navigator, &"gpu".into(), before.unchecked_ref());
    }
    Ok(instance)
}
