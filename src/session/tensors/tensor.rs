//! Tensors of users' own.

use crate::error::{Error, Result};
use crate::gpu::{BufferId, Gpu, LocalFuture, Region};
use crate::kernels::Element;
use crate::session::memory::{self, MemoryBytes, Purpose};
use crate::session::weights::GpuRef;
use futures_util::future::{FutureExt, Shared};
use std::rc::Rc;

/// Elements in a buffer of their own, which goes when the tensor does.
pub struct Tensor {
    gpu: GpuRef,
    buffer: BufferId,
    bytes: u64,
    /// Whether the device has memory for it.
    allocated: Shared<LocalFuture<Result<()>>>,
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tensor").field("buffer", &self.buffer).field("bytes", &self.bytes).finish()
    }
}

impl Tensor {
    /// A tensor of zeros.
    ///
    /// # Errors
    /// `limit-exceeded` when it does not fit one binding, `device-lost`; that there is no memory for
    /// it shows in [`Tensor::allocated`].
    pub fn zeros(gpu: &Rc<dyn Gpu>, elements: u64, element: Element) -> Result<Self> {
        let bytes = elements.saturating_mul(element.bytes() as u64).next_multiple_of(16);
        let have = gpu.capabilities().limits.binding_bytes();
        if bytes > have {
            let what = format!("a tensor of {elements} elements of {}", element.name());
            return Err(Error::limit("maxStorageBufferBindingSize", have, bytes, &what));
        }
        memory::check_memory(&**gpu, Purpose::Tensor, &MemoryBytes::of_tensor(bytes))?;
        let label = format!("a tensor of {elements} elements of {}", element.name());
        gpu.push_error_scope();
        let buffer = gpu.create_buffer(&label, bytes);
        let allocated = gpu.pop_error_scope().shared();
        Ok(Self { gpu: GpuRef(Rc::clone(gpu)), buffer: buffer?, bytes, allocated })
    }

    /// Whether the device has memory for it: `out-of-memory` names its size. The future does not keep the tensor.
    pub fn allocated(&self) -> LocalFuture<Result<()>> {
        Box::pin(self.allocated.clone())
    }

    pub const fn buffer(&self) -> BufferId {
        self.buffer
    }

    /// Overwrites bytes from `offset` on, between [`Gpu::push_error_scope`] and [`Gpu::pop_error_scope`]. Both it and their
    /// number are multiples of 4.
    ///
    /// # Errors
    /// `internal` past the tensor's end.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.within(offset, bytes.len() as u64)?;
        self.gpu.0.write(self.buffer, offset, bytes)
    }

    fn within(&self, offset: u64, bytes: u64) -> Result<()> {
        let end = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        if end && offset.is_multiple_of(4) && bytes.is_multiple_of(4) {
            return Ok(());
        }
        let have = self.bytes;
        Err(Error::internal(format!("{bytes} bytes from {offset} of a tensor of {have}")))
    }

    /// `bytes` bytes from `offset` on, both multiples of 4.
    ///
    /// # Errors
    /// `internal` past the tensor's end, `out-of-memory`, `device-lost`.
    pub async fn read(&self, offset: u64, bytes: u64) -> Result<Vec<u8>> {
        self.within(offset, bytes)?;
        let region = Region { buffer: self.buffer, offset, bytes };
        self.allocated().await?;
        self.gpu.0.read(region)?.await
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        self.gpu.0.destroy_buffer(self.buffer);
    }
}
