//! What wgpu leaves out of a browser's WebGPU: error scopes and pipelines compiled side by side.
//!
//! wgpu 30 has no `createComputePipelineAsync` and no way to wrap a pipeline that it did not make
//! (<https://github.com/gfx-rs/wgpu/issues/3794>). So its own request is answered for it: while it asks, the device has
//! a `createComputePipeline` of ours, which first takes the descriptor down and, when the browser has compiled that,
//! hands the result over. Nothing stays on the device. Delete this when wgpu can ask by itself.

use crate::error::{Error, Result};
use js_sys::{Object, Promise, Reflect};
use std::cell::Cell;
use std::rc::Rc;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;

/// A `GPUErrorFilter`. The glue has its strings: nothing is decoded for a scope.
#[wasm_bindgen]
#[derive(Clone, Copy, Debug)]
pub(super) enum ErrorFilter {
    Validation = "validation",
    OutOfMemory = "out-of-memory",
    Internal = "internal",
}

#[wasm_bindgen]
extern "C" {
    /// A GPUDevice's error scopes.
    pub(super) type ErrorScopes;

    #[wasm_bindgen(method, js_name = pushErrorScope)]
    pub(super) fn push_error_scope(this: &ErrorScopes, filter: ErrorFilter);

    #[wasm_bindgen(method, js_name = popErrorScope)]
    pub(super) fn pop_error_scope(this: &ErrorScopes) -> Promise;

    type GpuError;

    #[wasm_bindgen(method, getter)]
    fn message(this: &GpuError) -> String;

    type GpuDevice;

    #[wasm_bindgen(method, catch, js_name = createComputePipelineAsync)]
    fn create_compute_pipeline_async(
        this: &GpuDevice,
        descriptor: &JsValue,
    ) -> std::result::Result<JsValue, JsValue>;

    type GpuQueue;

    #[wasm_bindgen(method, catch, js_name = writeBuffer)]
    fn write_buffer(
        this: &GpuQueue,
        buffer: &JsValue,
        offset: f64,
        data: &[u8],
    ) -> std::result::Result<(), JsValue>;
}

pub(super) fn error_scopes(device: &wgpu::Device) -> Option<ErrorScopes> {
    raw(device).map(|device| device.unchecked_into())
}

/// What a GPUError says.
pub(super) fn message(error: &JsValue) -> String {
    error.unchecked_ref::<GpuError>().message()
}

/// As wgpu's, whose own ends the module where the browser throws.
pub(super) fn write_buffer(
    queue: &wgpu::Queue,
    buffer: &wgpu::Buffer,
    offset: u64,
    data: &[u8],
) -> Result<()> {
    let (Some(queue), Some(buffer)) = (queue.as_webgpu(), buffer.as_webgpu()) else {
        return Err(Error::internal("the device is not a WebGPU device"));
    };
    let queue: &GpuQueue = AsRef::<JsValue>::as_ref(queue).unchecked_ref();
    queue.write_buffer(buffer.as_ref(), offset as f64, data).map_err(|error| {
        let bytes = data.len();
        Error::internal(format!("the browser refused to write {bytes} bytes: {error:?}"))
    })
}

const METHOD: &str = "createComputePipeline";

fn raw(device: &wgpu::Device) -> Option<GpuDevice> {
    device.as_webgpu().map(|raw| AsRef::<JsValue>::as_ref(raw).clone().unchecked_into())
}

/// Runs `ask` while `answer` stands in for the device's method; not where the device takes none.
fn standing_in<T>(
    device: &GpuDevice,
    answer: impl FnOnce(JsValue) -> JsValue + 'static,
    ask: impl FnOnce() -> T,
) -> Option<T> {
    let method = JsValue::from(METHOD);
    let answer = Closure::once(answer);
    // A page may have put a method of its own there.
    let object: &Object = device.unchecked_ref();
    let before = Object::get_own_property_descriptor(object, &method);
    if !Reflect::set(object, &method, answer.as_ref()).unwrap_or(false) {
        return None;
    }
    let asked = ask();
    if before.is_undefined() {
        let _ = Reflect::delete_property(object, &method);
    } else {
        Object::define_property(object, &method, before.unchecked_ref());
    }
    Some(asked)
}

/// Begins to compile the pipeline that `ask` asks the device for. Nobody uses its result. None where the browser
/// cannot.
pub(super) fn begin_pipeline<T>(
    device: &wgpu::Device,
    ask: impl FnOnce() -> T,
) -> Option<JsFuture> {
    let device = raw(device)?;
    let noted = Rc::new(Cell::new(JsValue::UNDEFINED));
    let note = Rc::clone(&noted);
    let answer = move |descriptor| {
        note.set(descriptor);
        JsValue::UNDEFINED
    };
    standing_in(&device, answer, ask)?;
    let descriptor = noted.take();
    if descriptor.is_undefined() {
        return None;
    }
    let compiling = device.create_compute_pipeline_async(&descriptor).ok()?;
    Some(Promise::resolve(&compiling).into())
}

/// The pipeline that `ask` asks the device for, which is this one.
pub(super) fn adopt_pipeline<T>(
    device: &wgpu::Device,
    compiled: &JsValue,
    ask: impl FnOnce() -> T,
) -> Option<T> {
    let compiled = compiled.clone();
    standing_in(&raw(device)?, move |_| compiled, ask)
}
