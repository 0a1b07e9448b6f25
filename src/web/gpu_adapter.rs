//! Reads what wgpu does not report of the browser's adapter, and requests a device with subgroups and their matrices.
//!
//! wgpu 30 does not know WebGPU's `subgroups` feature, nor that of subgroup matrices, and so cannot request them
//! (<https://github.com/gfx-rs/wgpu/issues/10146>). Until it does, this file reads the adapter's facts and hands a
//! stand-in for it to wgpu through a stand-in for `navigator.gpu` that lives for one call. The stand-in's
//! `requestDevice` adds the features, and gives a device or a rejection whatever the adapter's own does: an exception
//! inside wgpu would end the module. Delete the features' part when wgpu can ask by itself.

use super::object;
use super::webgpu::{AdapterInfo, Descriptor, Device, SetLike, WebAdapter, WebGpu};
use crate::caps::{AdapterName, MATRIX_FEATURE, MatrixConfig, MatrixElement};
use crate::error::{Error, ErrorCode, Result};
use crate::gpu::{AdapterFacts, DeviceRequest, WgpuDevice};
use js_sys::{Array, Function, Object, Promise, Reflect};
use std::rc::Rc;
use tinyloom_gpu::host;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::{JsFuture, future_to_promise};

/// What a page's object, which may be no such thing, gives for a property.
type Got = std::result::Result<JsValue, JsValue>;

/// What was got, undefined where the object refuses it.
fn given(got: Got) -> JsValue {
    got.unwrap_or(JsValue::UNDEFINED)
}

/// Opens a device on an adapter of this GPU object.
pub(super) async fn open(
    gpu: &WebGpu,
    adapter: &WebAdapter,
    request: &DeviceRequest,
) -> Result<Rc<WgpuDevice>> {
    let facts = facts(gpu, adapter);
    let mut features = vec![];
    if facts.subgroups && request.features.subgroups {
        features.push("subgroups");
    }
    if !facts.matrices_for(request.features).is_empty() {
        features.push(MATRIX_FEATURE);
    }
    let adapter = checked(adapter, features)?;
    let instance =
        instance_with(&adapter).map_err(|e| thrown("standing in for navigator.gpu", &e))?;
    let adapter = WgpuDevice::adapter(&instance, request).await?;
    WgpuDevice::from_adapter(&adapter, &facts, request, host::now).await
}

fn thrown(doing: &str, error: &JsValue) -> Error {
    Error::internal(format!("{doing} failed: {error:?}"))
}

fn unavailable(reason: String) -> Error {
    Error::new(ErrorCode::AdapterUnavailable, format!("no WebGPU adapter: {reason}"))
}

fn facts(gpu: &WebGpu, adapter: &WebAdapter) -> AdapterFacts {
    let info: AdapterInfo = given(adapter.info()).unchecked_into();
    let text = |got: Got| given(got).as_string().unwrap_or_default();
    let size = |got: Got| given(got).as_f64().unwrap_or(0.0) as u32;
    let truth = |got: Got| given(got).as_bool().unwrap_or(false);
    let subgroups = has(adapter.features(), "subgroups");
    let matrices = has(adapter.features(), MATRIX_FEATURE).then(|| matrices(&info));
    AdapterFacts {
        name: Some(AdapterName {
            vendor: text(info.vendor()),
            architecture: text(info.architecture()),
            device: text(info.device()),
            description: text(info.description()),
        }),
        subgroups,
        subgroup_id: subgroups && has(gpu.wgsl_language_features(), "subgroup_id"),
        subgroup_size: [size(info.subgroup_min_size()), size(info.subgroup_max_size())],
        matrices: matrices.unwrap_or_default(),
        fallback: truth(info.is_fallback()) || truth(adapter.is_fallback()),
    }
}

/// The products of matrices that an adapter lists; those of elements unknown here are left out.
fn matrices(info: &AdapterInfo) -> Vec<MatrixConfig> {
    let listed = given(info.subgroup_matrix_configs());
    let listed = js_sys::try_iter(&listed).ok().flatten().into_iter().flatten();
    let config = |entry: Got| {
        let entry = entry.ok()?;
        let field = |name: &str| given(Reflect::get(&entry, &name.into()));
        let size = |name: &str| field(name).as_f64().map(|size| size as u32);
        let element = |name: &str| {
            let name = field(name).as_string()?;
            MatrixElement::ALL.into_iter().find(|element| element.name() == name)
        };
        Some(MatrixConfig {
            component: element("componentType")?,
            result: element("resultComponentType")?,
            m: size("M")?,
            n: size("N")?,
            k: size("K")?,
        })
    };
    listed.filter_map(config).collect()
}

/// Membership in one of WebGPU's set-like objects.
fn has(names: Got, name: &str) -> bool {
    let names: SetLike = given(names).unchecked_into();
    given(names.has(name)).is_truthy()
}

/// A property of the adapter that is an object.
fn part(name: &str, got: Got) -> Result<JsValue> {
    let part = given(got);
    if part.is_object() {
        return Ok(part);
    }
    Err(unavailable(format!("requestAdapter gave an object without {name}")))
}

/// A stand-in with what wgpu reads of an adapter, once it is there.
fn checked(adapter: &WebAdapter, added: Vec<&'static str>) -> Result<JsValue> {
    let info = part("info", adapter.info())?;
    let features = part("features", adapter.features())?;
    let limits = part("limits", adapter.limits())?;
    let info: AdapterInfo = info.unchecked_into();
    for (name, text) in [
        ("vendor", info.vendor()),
        ("architecture", info.architecture()),
        ("device", info.device()),
        ("description", info.description()),
    ] {
        if !given(text).is_string() {
            return Err(unavailable(format!("the adapter's info has no text {name}")));
        }
    }
    let missing = |name: &str| unavailable(format!("the adapter has no method {name}"));
    if !given(features.unchecked_ref::<SetLike>().membership()).is_function() {
        return Err(missing("features.has"));
    }
    let own: Function =
        given(adapter.request_device()).dyn_into().map_err(|_| missing("requestDevice"))?;
    Ok(object(&[
        ("info", &info),
        ("features", &features),
        ("limits", &limits),
        ("requestDevice", &requesting(adapter, own, added)),
    ])
    .into())
}

/// The stand-in's `requestDevice`, which asks the adapter's own with these features added.
fn requesting(adapter: &WebAdapter, own: Function, added: Vec<&'static str>) -> JsValue {
    let adapter = JsValue::from(adapter);
    Closure::once_into_js(move |descriptor: JsValue| -> Promise {
        future_to_promise(async move {
            if !added.is_empty() {
                let asked: &Descriptor = descriptor.unchecked_ref();
                let features = Array::from(&given(asked.required_features()));
                for name in added {
                    features.push(&name.into());
                }
                Reflect::set(&descriptor, &"requiredFeatures".into(), &features)?;
            }
            let asked = own.call1(&adapter, &descriptor)?;
            let device = JsFuture::from(Promise::resolve(&asked)).await?;
            let parts: &Device = device.unchecked_ref();
            if given(parts.queue()).is_object() && given(parts.lost()).is_object() {
                return Ok(device);
            }
            Err(js_sys::Error::new("requestDevice gave no GPUDevice").into())
        })
    })
}

/// A wgpu instance whose GPU object answers `requestAdapter` with this adapter.
fn instance_with(adapter: &JsValue) -> std::result::Result<wgpu::Instance, JsValue> {
    let adapter = adapter.clone();
    let answer = Closure::once_into_js(move |_options: JsValue| Promise::resolve(&adapter));
    let stand_in = object(&[("requestAdapter", &answer)]);

    let navigator = host::global().navigator().ok_or("there is no navigator")?;
    let navigator: &Object = navigator.unchecked_ref();
    let before = Object::get_own_property_descriptor(navigator, &"gpu".into());
    let property = object(&[("value", &stand_in), ("configurable", &JsValue::TRUE)]);
    Object::define_property(navigator, &"gpu".into(), &property);
    let instance = wgpu::Instance::default();
    if before.is_undefined() {
        Reflect::delete_property(navigator, &"gpu".into())?;
    } else {
        Object::define_property(navigator, &"gpu".into(), before.unchecked_ref());
    }
    Ok(instance)
}
