//! Operations on tensors by themselves, without a model.

use super::model::GpuRef;
use super::resources::Resources;
use crate::error::{Error, Result};
use crate::gpu::{BufferId, Gpu, Region, Replay};
use crate::kernels::Element;
use crate::plan::{AttentionCall, AttentionPlan, Buffer, BufferBytes};
use std::rc::Rc;

/// Elements in a buffer of their own, which goes when the tensor does.
#[derive(Debug)]
pub struct Tensor {
    gpu: GpuRef,
    buffer: BufferId,
    bytes: u64,
}

impl Tensor {
    /// A tensor of zeros.
    ///
    /// # Errors
    /// `limit-exceeded` when it does not fit one binding, `device-lost`; that there is no memory for
    /// it shows in the first operation.
    pub fn zeros(gpu: &Rc<dyn Gpu>, elements: u64, element: Element) -> Result<Self> {
        let bytes = elements.saturating_mul(element.bytes() as u64).next_multiple_of(16);
        let have = gpu.capabilities().limits.binding_bytes();
        if bytes > have {
            let what = format!("a tensor of {elements} elements of {}", element.name());
            return Err(Error::limit("maxStorageBufferBindingSize", have, bytes, &what));
        }
        let buffer = gpu.create_buffer("tensor", bytes)?;
        Ok(Self { gpu: GpuRef(Rc::clone(gpu)), buffer, bytes })
    }

    pub const fn buffer(&self) -> BufferId {
        self.buffer
    }

    /// Overwrites the first bytes. A length that is no multiple of 4 is padded with zeros.
    ///
    /// # Errors
    /// `internal` for more bytes than the tensor has.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        if bytes.len().is_multiple_of(4) {
            return self.gpu.0.write(self.buffer, offset, bytes);
        }
        let mut padded = bytes.to_vec();
        padded.resize(bytes.len().next_multiple_of(4), 0);
        self.gpu.0.write(self.buffer, offset, &padded)
    }

    /// All bytes.
    ///
    /// # Errors
    /// `device-lost`.
    pub async fn read(&self) -> Result<Vec<u8>> {
        let region = Region { buffer: self.buffer, offset: 0, bytes: self.bytes };
        self.gpu.0.read(region)?.await
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        self.gpu.0.destroy_buffer(self.buffer);
    }
}

/// What is asked of attention over tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionOperation {
    Forward,
    Backward,
}

/// Queues an operation; what it wrote may be read, or used by another, at once. `dense` are the words
/// of the mask's dense part. The future tells whether the GPU had memory for it.
///
/// # Errors
/// `invalid-options`, `limit-exceeded`, `out-of-memory`, `device-lost`.
pub async fn attention(
    gpu: &Rc<dyn Gpu>,
    operation: AttentionOperation,
    call: &AttentionCall,
    dense: &[u32],
) -> Result<()> {
    let bytes: BufferBytes = &|id| gpu.buffer_bytes(BufferId(id));
    let caps = gpu.capabilities();
    let compiled = match operation {
        AttentionOperation::Forward => call.forward(caps, dense, bytes),
        AttentionOperation::Backward => call.backward(caps, dense, bytes),
    }?;
    // Everything is queued before anything is awaited: calls run in the order in which they are made.
    gpu.watch();
    let queued = queue(gpu, &compiled);
    let checked = gpu.checked().await;
    queued?;
    checked
}

fn queue(gpu: &Rc<dyn Gpu>, compiled: &AttentionPlan) -> Result<()> {
    // Given back at the end of this function: the GPU keeps what it has been told to use.
    let mut resources = Resources::new(gpu);
    for (index, &bytes) in compiled.plan.slots.iter().enumerate() {
        resources.add(Buffer::Slot(index), bytes)?;
    }
    let geometry = resources.add(Buffer::Step, size_of_val(&compiled.geometry) as u64)?;
    gpu.write(geometry, 0, bytemuck::bytes_of(&compiled.geometry))?;
    let mask = resources.add(Buffer::Batch, size_of_val(compiled.mask.as_slice()) as u64)?;
    gpu.write(mask, 0, bytemuck::cast_slice(&compiled.mask))?;
    let resolve = |name| match name {
        Buffer::Given(id) => Ok(BufferId(id)),
        other => resources.get(other),
    };
    let plan = gpu.install(&compiled.plan, &resolve)?;
    let queued = gpu.submit(&[Replay { plan, rows: compiled.rows }], 1, None);
    gpu.uninstall(plan);
    queued.map(drop)
}
