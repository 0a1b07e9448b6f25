//! The browser's adapter: what wgpu cannot tell of it, and a device with subgroups.
//!
//! wgpu 30 does not know WebGPU's `subgroups` feature and so cannot request it
//! (<https://github.com/gfx-rs/wgpu/issues/10146>). Until it does, this file asks the GPU object for
//! the adapter itself, reads its facts, and hands it to wgpu through a stand-in for `navigator.gpu`
//! that lives for one call. The adapter's `requestDevice` is replaced, for its one call too, by one
//! that adds the feature. Delete the second half when wgpu can ask by itself.

use crate::caps::AdapterName;
use crate::error::{Error, ErrorCode, Result};
use crate::gpu::{AdapterFacts, DeviceRequest, PowerPreference, WgpuDevice};
use js_sys::{Array, Function, Object, Promise, Reflect};
use std::rc::Rc;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;

/// Opens a device on a GPU object (`navigator.gpu`, or a stand-in such as Dawn's in Node).
pub(super) async fn open(gpu: &JsValue, request: &DeviceRequest) -> Result<Rc<WgpuDevice>> {
    if gpu.is_undefined() || gpu.is_null() {
        return Err(Error::new(
            ErrorCode::WebgpuUnavailable,
            "this environment has no WebGPU (navigator.gpu is missing); use a browser with WebGPU over https or \
             localhost, or pass `gpu`",
        ));
    }
    let adapter = request_adapter(gpu, request).await?;
    let facts = facts(gpu, &adapter);
    if facts.subgroups && request.features.subgroups {
        request_subgroups(&adapter).map_err(|e| thrown("replacing requestDevice", &e))?;
    }
    let instance =
        instance_with(&adapter).map_err(|e| thrown("standing in for navigator.gpu", &e))?;
    let adapter = WgpuDevice::adapter(&instance, request).await?;
    WgpuDevice::from_adapter(&adapter, &facts, request, now).await
}

/// Milliseconds by the page's, worker's or Node's own clock.
fn now() -> f64 {
    let performance = get(&js_sys::global(), "performance");
    let clock = get(&performance, "now").dyn_into::<Function>();
    clock
        .and_then(|clock| clock.call0(&performance))
        .ok()
        .and_then(|ms| ms.as_f64())
        .unwrap_or_else(js_sys::Date::now)
}

fn thrown(doing: &str, error: &JsValue) -> Error {
    Error::internal(format!("{doing} failed: {error:?}"))
}

fn get(object: &JsValue, name: &str) -> JsValue {
    Reflect::get(object, &name.into()).unwrap_or(JsValue::UNDEFINED)
}

fn method(object: &JsValue, name: &str) -> Result<Function> {
    let found = get(object, name).dyn_into();
    found.map_err(|_| {
        Error::new(ErrorCode::WebgpuUnavailable, format!("the gpu object has no {name} method"))
    })
}

async fn request_adapter(gpu: &JsValue, request: &DeviceRequest) -> Result<JsValue> {
    let options = Object::new();
    let preference = match request.power_preference {
        PowerPreference::HighPerformance => "high-performance",
        PowerPreference::LowPower => "low-power",
    };
    let unavailable = |reason: String| {
        Error::new(ErrorCode::AdapterUnavailable, format!("no WebGPU adapter: {reason}"))
    };
    Reflect::set(&options, &"powerPreference".into(), &preference.into())
        .map_err(|e| thrown("setting an option", &e))?;
    let asked = method(gpu, "requestAdapter")?
        .call1(gpu, &options)
        .map_err(|e| unavailable(format!("{e:?}")))?;
    let adapter = JsFuture::from(Promise::resolve(&asked))
        .await
        .map_err(|e| unavailable(format!("{e:?}")))?;
    if adapter.is_null() || adapter.is_undefined() {
        return Err(unavailable("requestAdapter found none".into()));
    }
    Ok(adapter)
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
    let test = get(set, "has").dyn_into::<Function>();
    test.and_then(|test| test.call1(set, &name.into())).is_ok_and(|found| found.is_truthy())
}

/// Makes the adapter's next `requestDevice` ask for subgroups too.
fn request_subgroups(adapter: &JsValue) -> std::result::Result<(), JsValue> {
    let own = get(adapter, "requestDevice").dyn_into::<Function>()?;
    let this = adapter.clone();
    let replacement = Closure::once_into_js(
        move |descriptor: JsValue| -> std::result::Result<JsValue, JsValue> {
            let features = Array::from(&get(&descriptor, "requiredFeatures"));
            features.push(&"subgroups".into());
            Reflect::set(&descriptor, &"requiredFeatures".into(), &features)?;
            own.call1(&this, &descriptor)
        },
    );
    Reflect::set(adapter, &"requestDevice".into(), &replacement)?;
    Ok(())
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
