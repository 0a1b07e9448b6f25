//! `RawTensor`, and the operations of `tinyloom/ops`.

use super::runtime::RawRuntime;
use super::{JsResult, to_js};
use crate::error::{Error, ErrorCode};
use crate::gpu::{BufferId, Gpu, WgpuDevice};
use crate::kernels::Element;
use crate::ops::{DenseData, Operation};
use crate::session::{Operations, Tensor};
use js_sys::{Promise, Uint8Array};
use std::cell::RefCell;
use std::rc::Rc;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::future_to_promise;

/// A tensor: the buffer alone; shape and strides are known to its users.
#[wasm_bindgen]
#[derive(Debug)]
pub struct RawTensor {
    device: Rc<WgpuDevice>,
    tensor: RefCell<Option<Rc<Tensor>>>,
}

impl RawTensor {
    fn tensor(&self) -> JsResult<Rc<Tensor>> {
        let freed = || to_js(Error::new(ErrorCode::Freed, "this tensor was freed"));
        self.tensor.borrow().clone().ok_or_else(freed)
    }
}

#[wasm_bindgen]
impl RawTensor {
    /// Names the buffer in calls.
    pub fn id(&self) -> JsResult<u32> {
        Ok(self.tensor()?.buffer().0)
    }

    /// The raw GPUBuffer.
    pub fn buffer(&self) -> JsResult<JsValue> {
        let buffer = self.device.raw_buffer(self.tensor()?.buffer()).map_err(to_js)?;
        let raw = buffer.as_webgpu().map(|raw| AsRef::<JsValue>::as_ref(raw).clone());
        raw.ok_or_else(|| to_js(Error::internal("the buffer is not a WebGPU buffer")))
    }

    /// A promise that resolves when the device is known to have memory for it. It borrows nothing: the
    /// object may be freed before.
    pub fn allocated(&self) -> JsResult<Promise> {
        let allocated = self.tensor()?.allocated();
        Ok(future_to_promise(
            async move { allocated.await.map(|()| JsValue::UNDEFINED).map_err(to_js) },
        ))
    }

    /// Begins writes, which end with `written` in the same task.
    pub fn begin(&self) {
        self.device.push_error_scope();
    }

    /// Overwrites bytes from `offset` on; both multiples of 4.
    pub fn write(&self, offset: f64, bytes: &[u8]) -> JsResult<()> {
        self.tensor()?.write(offset as u64, bytes).map_err(to_js)
    }

    /// Ends writes. The promise settles with whether the device accepted them.
    pub fn written(&self) -> Promise {
        let checked = self.device.pop_error_scope();
        future_to_promise(async move { checked.await.map(|()| JsValue::UNDEFINED).map_err(to_js) })
    }

    /// `bytes` bytes from `offset` on, both multiples of 4.
    pub async fn read(&self, offset: f64, bytes: f64) -> JsResult<Vec<u8>> {
        let tensor = self.tensor()?;
        tensor.read(offset as u64, bytes as u64).await.map_err(to_js)
    }

    pub fn release(&self) {
        self.tensor.replace(None);
    }
}

fn element(name: &str) -> JsResult<Element> {
    match name {
        "f32" => Ok(Element::F32),
        "f16" => Ok(Element::F16),
        other => {
            let message = format!("element is {other:?}; it must be \"f32\" or \"f16\"");
            Err(to_js(Error::options(message)))
        }
    }
}

/// The bytes of a typed array, which stay where they are until they are read.
struct Bytes(Uint8Array);

impl DenseData for Bytes {
    fn bytes(&self) -> usize {
        self.0.length() as usize
    }

    fn read(&self, from: usize, into: &mut [u8]) {
        self.0.subarray(from as u32, (from + into.len()) as u32).copy_to(into);
    }
}

/// An operation that has been judged.
#[wasm_bindgen]
#[derive(Debug)]
pub struct RawOperation {
    operations: Rc<Operations>,
    operation: Operation,
}

#[wasm_bindgen]
impl RawOperation {
    /// Queues the operation, and ends this object. `made` are the buffers of the tensors that were not
    /// given. The promise settles with whether the device accepted it.
    pub fn run(self, made: &[u32]) -> JsResult<Promise> {
        let made: Vec<BufferId> = made.iter().copied().map(BufferId).collect();
        let accepted = self.operations.run(&self.operation, &made).map_err(to_js)?;
        Ok(future_to_promise(
            async move { accepted.await.map(|()| JsValue::UNDEFINED).map_err(to_js) },
        ))
    }
}

#[wasm_bindgen]
impl RawRuntime {
    /// A tensor of zeros.
    pub fn tensor(&self, elements: f64, element_name: &str) -> JsResult<RawTensor> {
        let device = self.device_rc()?;
        let element = element(element_name)?;
        let tensor = Tensor::zeros(&self.gpu()?, elements as u64, element).map_err(to_js)?;
        Ok(RawTensor { device, tensor: RefCell::new(Some(Rc::new(tensor))) })
    }

    /// Judges a call: `number` says which operation, `fields` what is asked of it, as
    /// [`Operation::of_fields`] reads them.
    pub fn operation(
        &self,
        number: u32,
        fields: &[f64],
        dense: Option<Uint8Array>,
    ) -> JsResult<RawOperation> {
        let operations = self.operations()?;
        let dense = dense.map(Bytes);
        let dense = dense.as_ref().map(|bytes| bytes as &dyn DenseData);
        let operation = Operation::of_fields(number, fields, dense).map_err(to_js)?;
        Ok(RawOperation { operations, operation })
    }
}
