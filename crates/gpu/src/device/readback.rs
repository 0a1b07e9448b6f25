//! Brings bytes back to the host through reused staging buffers.

use super::WgpuDevice;
use super::device_loss::DeviceLoss;
use crate::LocalFuture;
use crate::error::{Error, Result};
use futures_channel::oneshot::{Canceled, Receiver};
use std::cell::RefCell;
use std::rc::Rc;

/// Staging buffers above this size are not kept.
const KEEP_BYTES: u64 = 1 << 20;

pub(super) struct StagingPool {
    #[cfg(not(target_arch = "wasm32"))]
    device: wgpu::Device,
    free: RefCell<Vec<wgpu::Buffer>>,
    #[cfg(target_arch = "wasm32")]
    poller: super::readback_poller::ReadbackPoller,
}

impl WgpuDevice {
    /// A mappable buffer of at least `bytes`.
    pub(super) fn staging(&self, bytes: u64) -> wgpu::Buffer {
        let size = bytes.next_power_of_two().max(256);
        self.staging.take(size).unwrap_or_else(|| {
            self.allocate(&wgpu::BufferDescriptor {
                label: Some("a readback"),
                size: if size > KEEP_BYTES { bytes.next_multiple_of(4) } else { size },
                usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        })
    }
}

impl StagingPool {
    #[cfg_attr(not(target_arch = "wasm32"), expect(unused_variables))]
    pub fn new(device: &wgpu::Device, queue: &wgpu::Queue, clock: fn() -> f64) -> Self {
        Self {
            #[cfg(not(target_arch = "wasm32"))]
            device: device.clone(),
            free: RefCell::default(),
            #[cfg(target_arch = "wasm32")]
            poller: super::readback_poller::ReadbackPoller::new(
                device.clone(),
                queue.clone(),
                clock,
            ),
        }
    }

    /// One of this many bytes that is free.
    fn take(&self, size: u64) -> Option<wgpu::Buffer> {
        let mut free = self.free.borrow_mut();
        let index = free.iter().position(|buffer| buffer.size() == size)?;
        Some(free.swap_remove(index))
    }

    fn give_back(&self, buffer: wgpu::Buffer) {
        if buffer.size() <= KEEP_BYTES {
            self.free.borrow_mut().push(buffer);
        } else {
            buffer.destroy();
        }
    }

    /// The browser is about to answer this, and looks at the GPU then.
    #[cfg(target_arch = "wasm32")]
    pub fn answer(&self, answer: super::readback_poller::Answer) {
        self.poller.answer(answer);
    }

    pub fn clear(&self) {
        for buffer in self.free.borrow_mut().drain(..) {
            buffer.destroy();
        }
    }

    /// Maps a staging buffer that a submit fills, and copies its bytes out.
    pub fn fetch(
        self: &Rc<Self>,
        staging: wgpu::Buffer,
        bytes: u64,
        submitted: wgpu::SubmissionIndex,
        loss: &DeviceLoss,
    ) -> LocalFuture<Result<Vec<u8>>> {
        let (sender, receiver) = futures_channel::oneshot::channel();
        staging.map_async(wgpu::MapMode::Read, ..bytes, move |result| {
            let _ = sender.send(result);
        });
        let (pool, loss) = (Rc::clone(self), loss.clone());
        let filled = Filled(Some(staging));
        Box::pin(async move {
            let failed = match pool.arrival(receiver, submitted).await {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("its buffer is gone".into()),
            };
            if let Some(reason) = failed {
                let message = format!("the GPU did not give bytes back: {reason}; call again");
                return Err(loss.explain(Error::internal(message)).await);
            }
            loss.alive()?;
            let Some(staging) = filled.taken() else {
                return Err(Error::internal("a staging buffer was taken twice"));
            };
            // Destroying a device unmaps its buffers, be they just mapped.
            let data = staging.get_mapped_range(..bytes).map(|range| range.to_vec());
            let data = match data {
                Ok(data) => data,
                Err(error) => {
                    staging.destroy();
                    let message = format!("the GPU's bytes could not be read: {error}; call again");
                    return Err(loss.explain(Error::internal(message)).await);
                }
            };
            staging.unmap();
            pool.give_back(staging);
            Ok(data)
        })
    }

    #[cfg(not(target_arch = "wasm32"))]
    async fn arrival<T>(
        &self,
        receiver: Receiver<T>,
        submitted: wgpu::SubmissionIndex,
    ) -> std::result::Result<T, Canceled> {
        let _ = self
            .device
            .poll(wgpu::PollType::Wait { submission_index: Some(submitted), timeout: None });
        receiver.await
    }

    #[cfg(target_arch = "wasm32")]
    async fn arrival<T>(
        &self,
        receiver: Receiver<T>,
        _submitted: wgpu::SubmissionIndex,
    ) -> std::result::Result<T, Canceled> {
        self.poller.arrival(receiver).await
    }
}

/// A staging buffer on its way to the host. Nobody can use one again whose bytes are not awaited.
struct Filled(Option<wgpu::Buffer>);

impl Filled {
    fn taken(mut self) -> Option<wgpu::Buffer> {
        self.0.take()
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        if let Some(staging) = &self.0 {
            staging.destroy();
        }
    }
}
