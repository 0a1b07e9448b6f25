//! Brings bytes back to the host through reused staging buffers.

use super::{Trouble, WgpuDevice};
use crate::error::{Error, ErrorCode, Result};
use crate::gpu::{Counters, LocalFuture};
use futures_channel::oneshot::{Canceled, Receiver};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

/// Staging buffers above this size are not kept.
const KEEP_BYTES: u64 = 1 << 20;

pub(super) struct StagingPool {
    device: wgpu::Device,
    free: RefCell<Vec<wgpu::Buffer>>,
    counters: Rc<Cell<Counters>>,
    #[cfg(target_arch = "wasm32")]
    pace: super::nudge::Pace,
}

impl StagingPool {
    #[cfg_attr(not(target_arch = "wasm32"), expect(unused_variables))]
    pub fn new(
        device: &wgpu::Device,
        queue: &wgpu::Queue,
        counters: Rc<Cell<Counters>>,
        clock: fn() -> f64,
    ) -> Self {
        Self {
            device: device.clone(),
            free: RefCell::default(),
            counters,
            #[cfg(target_arch = "wasm32")]
            pace: super::nudge::Pace::new(device.clone(), queue.clone(), clock),
        }
    }

    /// A mappable buffer of at least `bytes`.
    pub fn take(&self, bytes: u64) -> wgpu::Buffer {
        let size = bytes.next_power_of_two().max(256);
        let mut free = self.free.borrow_mut();
        if let Some(index) = free.iter().position(|buffer| buffer.size() == size) {
            return free.swap_remove(index);
        }
        let mut counters = self.counters.get();
        counters.buffers += 1;
        self.counters.set(counters);
        self.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("staging"),
            size: if size > KEEP_BYTES { bytes.next_multiple_of(4) } else { size },
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        })
    }

    fn give_back(&self, buffer: wgpu::Buffer) {
        if buffer.size() <= KEEP_BYTES {
            self.free.borrow_mut().push(buffer);
        } else {
            buffer.destroy();
        }
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
        trouble: Arc<Mutex<Trouble>>,
    ) -> LocalFuture<Result<Vec<u8>>> {
        let (sender, receiver) = futures_channel::oneshot::channel();
        staging.map_async(wgpu::MapMode::Read, ..bytes, move |result| {
            let _ = sender.send(result);
        });
        let pool = Rc::clone(self);
        let filled = Filled(Some(staging));
        Box::pin(async move {
            let mapped = pool.arrival(receiver, submitted).await;
            WgpuDevice::settle(&trouble)?;
            match mapped {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    return Err(Error::new(
                        ErrorCode::DeviceLost,
                        format!("a readback failed: {error}"),
                    ));
                }
                Err(_) => {
                    return Err(Error::new(
                        ErrorCode::DeviceLost,
                        "a readback was dropped with its device",
                    ));
                }
            }
            let staging = filled.taken();
            let range = staging.get_mapped_range(..bytes).map_err(|error| {
                Error::internal(format!("a readback could not be mapped: {error}"))
            })?;
            let data = range.to_vec();
            drop(range);
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
        self.pace.arrival(receiver).await
    }
}

/// A staging buffer on its way to the host. Nobody can use one again whose bytes are not awaited.
struct Filled(Option<wgpu::Buffer>);

impl Filled {
    fn taken(mut self) -> wgpu::Buffer {
        self.0.take().expect("a staging buffer is taken once")
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        if let Some(staging) = &self.0 {
            staging.destroy();
        }
    }
}
