//! The wgpu backend: WebGPU in a browser or in Node, Vulkan, Metal or DX12 natively.

use super::adapter::{self, AdapterFacts, DeviceRequest};
use super::{BufferId, Counters, Gpu, LocalFuture, PlanId, Region, Replay};
use crate::caps::Capabilities;
use crate::error::{Error, ErrorCode, Result};
use crate::kernels::{Kernel, TunedProduct};
use crate::plan::{Buffer, Dispatch, Plan, RANGE_STRIDE};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

#[cfg(target_arch = "wasm32")]
mod browser;
#[cfg(target_arch = "wasm32")]
mod nudge;
mod pipelines;
mod readback;
mod replay;

use pipelines::Pipelines;
use readback::StagingPool;
use replay::{Installed, InstalledPlan};

/// Buffers up to this size may also be bound as uniforms.
const UNIFORM_BYTES: u64 = 64 << 10;

struct Allocation {
    buffer: wgpu::Buffer,
    bytes: u64,
}

/// What asynchronous callbacks leave behind.
#[derive(Default)]
struct Trouble {
    lost: Option<String>,
    error: Option<Error>,
    waiting: Vec<futures_channel::oneshot::Sender<String>>,
}

/// A device and everything made on it.
pub struct WgpuDevice {
    caps: Capabilities,
    device: wgpu::Device,
    queue: wgpu::Queue,
    buffers: RefCell<Vec<Option<Allocation>>>,
    pipelines: Rc<Pipelines>,
    plans: RefCell<Vec<Option<Rc<InstalledPlan>>>>,
    scopes: RefCell<Vec<wgpu::ErrorScopeGuard>>,
    staging: Rc<StagingPool>,
    trouble: Arc<Mutex<Trouble>>,
    counters: Rc<Cell<Counters>>,
    clock: fn() -> f64,
    tuned: RefCell<Option<Vec<TunedProduct>>>,
}

impl std::fmt::Debug for WgpuDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WgpuDevice").field("caps", &self.caps).finish_non_exhaustive()
    }
}

impl WgpuDevice {
    /// Requests the best native adapter, and a device with what the request leaves of it.
    ///
    /// # Errors
    /// `adapter-unavailable`; `invalid-options` for a cap that makes no sense.
    #[cfg(not(target_arch = "wasm32"))]
    pub async fn open(request: &DeviceRequest) -> Result<Rc<Self>> {
        let instance = wgpu::Instance::default();
        let adapter = Self::adapter(&instance, request).await?;
        let info = adapter.get_info();
        let facts = AdapterFacts {
            subgroups: adapter.features().contains(wgpu::Features::SUBGROUP),
            subgroup_id: true,
            subgroup_size: [info.subgroup_min_size, info.subgroup_max_size],
            ..AdapterFacts::default()
        };
        Self::from_adapter(&adapter, &facts, request, native_clock).await
    }

    /// The adapter for a request.
    pub async fn adapter(
        instance: &wgpu::Instance,
        request: &DeviceRequest,
    ) -> Result<wgpu::Adapter> {
        let options = wgpu::RequestAdapterOptions {
            power_preference: match request.power_preference {
                adapter::PowerPreference::HighPerformance => wgpu::PowerPreference::HighPerformance,
                adapter::PowerPreference::LowPower => wgpu::PowerPreference::LowPower,
            },
            ..Default::default()
        };
        instance.request_adapter(&options).await.map_err(|e| adapter::no_adapter(&e.to_string()))
    }

    /// Makes a device on an adapter; `clock` gives milliseconds.
    pub async fn from_adapter(
        adapter: &wgpu::Adapter,
        facts: &AdapterFacts,
        request: &DeviceRequest,
        clock: fn() -> f64,
    ) -> Result<Rc<Self>> {
        let caps = adapter::capabilities(adapter, facts, request)?;
        let (device, queue) = adapter
            .request_device(&adapter::descriptor(&caps))
            .await
            .map_err(|e| adapter::no_device(&e))?;
        let trouble = Arc::new(Mutex::new(Trouble::default()));
        let shared = Arc::clone(&trouble);
        device.set_device_lost_callback(move |reason, message| {
            let message = format!("{reason:?}: {message}");
            if let Ok(mut trouble) = shared.lock() {
                trouble.lost = Some(message.clone());
                for waiting in trouble.waiting.drain(..) {
                    let _ = waiting.send(message.clone());
                }
            }
        });
        // In a browser the page may work on the device too, and what no scope of ours catches is its own.
        #[cfg(not(target_arch = "wasm32"))]
        let shared = Arc::clone(&trouble);
        #[cfg(not(target_arch = "wasm32"))]
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            if let Ok(mut trouble) = shared.lock() {
                trouble.error.get_or_insert(from_wgpu(&error));
            }
        }));
        let counters = Rc::new(Cell::new(Counters::default()));
        Ok(Rc::new(Self {
            caps,
            staging: Rc::new(StagingPool::new(&device, &queue, Rc::clone(&counters), clock)),
            pipelines: Rc::new(Pipelines::new(device.clone(), Rc::clone(&counters))),
            device,
            queue,
            buffers: RefCell::default(),
            plans: RefCell::default(),
            scopes: RefCell::default(),
            trouble,
            counters,
            clock,
            tuned: RefCell::default(),
        }))
    }

    pub fn raw(&self) -> &wgpu::Device {
        &self.device
    }

    /// The raw buffer of an id.
    pub fn raw_buffer(&self, id: BufferId) -> Result<wgpu::Buffer> {
        self.with_buffer(id, |allocation| allocation.buffer.clone())
    }

    /// Resolves with the reason when the device is lost.
    pub fn when_lost(&self) -> LocalFuture<String> {
        let (sender, receiver) = futures_channel::oneshot::channel();
        if let Ok(mut trouble) = self.trouble.lock() {
            match &trouble.lost {
                Some(message) => {
                    let _ = sender.send(message.clone());
                }
                None => trouble.waiting.push(sender),
            }
        }
        Box::pin(async move { receiver.await.unwrap_or_else(|_| "the device was dropped".into()) })
    }

    fn count(&self, change: impl FnOnce(&mut Counters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    fn alive(&self) -> Result<()> {
        match self.lost() {
            Some(reason) => {
                Err(Error::new(ErrorCode::DeviceLost, format!("the GPU device is lost ({reason})")))
            }
            None => Ok(()),
        }
    }

    /// The first uncaptured error since the last call, or the loss of the device.
    fn settle(trouble: &Mutex<Trouble>) -> Result<()> {
        let mut trouble = trouble.lock().map_err(|_| Error::internal("a GPU callback panicked"))?;
        if let Some(reason) = &trouble.lost {
            return Err(Error::new(
                ErrorCode::DeviceLost,
                format!("the GPU device is lost ({reason})"),
            ));
        }
        trouble.error.take().map_or(Ok(()), Err)
    }

    fn with_buffer<T>(&self, id: BufferId, use_it: impl FnOnce(&Allocation) -> T) -> Result<T> {
        let buffers = self.buffers.borrow();
        let found = buffers.get(id.0 as usize).and_then(Option::as_ref);
        found.map(use_it).ok_or_else(|| Error::internal(format!("buffer {} does not exist", id.0)))
    }

    fn bind(
        &self,
        kernel: &Kernel,
        dispatch: &Dispatch,
        resolve: &dyn Fn(Buffer) -> Result<BufferId>,
        ranges: &wgpu::Buffer,
    ) -> Result<wgpu::BindGroup> {
        let mut bound = Vec::with_capacity(dispatch.slices.len());
        for slice in &dispatch.slices {
            let buffer = if slice.buffer == Buffer::Ranges {
                ranges.clone()
            } else {
                self.with_buffer(resolve(slice.buffer)?, |allocation| allocation.buffer.clone())?
            };
            bound.push((buffer, slice.offset, wgpu::BufferSize::new(slice.bytes)));
        }
        let entries: Vec<_> = (0..)
            .zip(&bound)
            .map(|(binding, (buffer, offset, size))| wgpu::BindGroupEntry {
                binding,
                resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer,
                    offset: *offset,
                    size: *size,
                }),
            })
            .collect();
        self.count(|c| c.bind_groups += 1);
        Ok(self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some(&dispatch.label),
            layout: &self.pipelines.layout(&kernel.bindings),
            entries: &entries,
        }))
    }

    fn make_ranges(&self, plan: &Plan) -> wgpu::Buffer {
        let bytes = (plan.ranges.len().max(1) as u64) * RANGE_STRIDE;
        let buffer = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("ranges"),
            size: bytes,
            usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        for (offset, range) in (0..).step_by(RANGE_STRIDE as usize).zip(&plan.ranges) {
            self.queue.write_buffer(&buffer, offset, bytemuck::bytes_of(range));
        }
        self.count(|c| {
            c.buffers += 1;
            c.gpu_bytes += bytes;
        });
        buffer
    }
}

#[cfg(not(target_arch = "wasm32"))]
fn native_clock() -> f64 {
    static START: std::sync::LazyLock<std::time::Instant> =
        std::sync::LazyLock::new(std::time::Instant::now);
    START.elapsed().as_secs_f64() * 1e3
}

fn from_wgpu(error: &wgpu::Error) -> Error {
    match error {
        wgpu::Error::OutOfMemory { .. } => Error::new(
            ErrorCode::OutOfMemory,
            "the GPU is out of memory; use a smaller model, fewer tokens a step, or free other models",
        ),
        other => Error::internal(format!("the GPU refused a command: {other}")),
    }
}

impl Gpu for WgpuDevice {
    fn capabilities(&self) -> &Capabilities {
        &self.caps
    }

    fn create_buffer(&self, label: &str, bytes: u64) -> Result<BufferId> {
        self.alive()?;
        let bytes = bytes.next_multiple_of(16).max(16);
        let have = self.caps.limits.max_buffer_size;
        if bytes > have {
            return Err(Error::limit("maxBufferSize", have, bytes, label));
        }
        let mut usage = wgpu::BufferUsages::STORAGE
            | wgpu::BufferUsages::COPY_SRC
            | wgpu::BufferUsages::COPY_DST;
        if bytes <= UNIFORM_BYTES {
            usage |= wgpu::BufferUsages::UNIFORM;
        }
        let descriptor = wgpu::BufferDescriptor {
            label: Some(label),
            size: bytes,
            usage,
            mapped_at_creation: false,
        };
        let buffer = self.device.create_buffer(&descriptor);
        self.count(|c| {
            c.buffers += 1;
            c.gpu_bytes += bytes;
        });
        let mut buffers = self.buffers.borrow_mut();
        let free = buffers.iter().position(Option::is_none).unwrap_or_else(|| {
            buffers.push(None);
            buffers.len() - 1
        });
        buffers[free] = Some(Allocation { buffer, bytes });
        Ok(BufferId(free as u32))
    }

    fn destroy_buffer(&self, buffer: BufferId) {
        if let Some(gone) =
            self.buffers.borrow_mut().get_mut(buffer.0 as usize).and_then(Option::take)
        {
            gone.buffer.destroy();
            self.count(|c| c.gpu_bytes -= gone.bytes);
        }
    }

    fn buffer_bytes(&self, buffer: BufferId) -> Option<u64> {
        self.with_buffer(buffer, |allocation| allocation.bytes).ok()
    }

    fn write(&self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<()> {
        self.with_buffer(buffer, |allocation| {
            if offset + data.len() as u64 > allocation.bytes {
                return Err(Error::internal("a write past the end of a buffer"));
            }
            self.queue.write_buffer(&allocation.buffer, offset, data);
            Ok(())
        })?
    }

    fn prepare(&self, plans: &[&Plan]) -> LocalFuture<()> {
        // On a CPU side by side takes 2.5 times as long as one after the other (SwiftShader, two cores).
        if self.caps.software {
            return Box::pin(std::future::ready(()));
        }
        self.pipelines.prepare(plans.iter().flat_map(|plan| &plan.kernels))
    }

    fn install(&self, plan: &Plan, resolve: &dyn Fn(Buffer) -> Result<BufferId>) -> Result<PlanId> {
        self.alive()?;
        let pipelines: Vec<_> =
            plan.kernels.iter().map(|kernel| self.pipelines.get(kernel)).collect();
        let ranges = self.make_ranges(plan);
        let mut installed = Vec::with_capacity(plan.dispatches.len());
        for dispatch in &plan.dispatches {
            let kernel = &plan.kernels[dispatch.kernel];
            installed.push(Installed {
                pipeline: dispatch.kernel,
                bind_group: self.bind(kernel, dispatch, resolve, &ranges)?,
                grid: kernel.grid,
                range: dispatch.range,
                weight: dispatch.cost.flops + dispatch.cost.bytes,
            });
        }
        let ranges_bytes = ranges.size();
        let plan =
            Rc::new(InstalledPlan { pipelines, dispatches: installed, ranges, ranges_bytes });
        let mut plans = self.plans.borrow_mut();
        let free = plans.iter().position(Option::is_none).unwrap_or_else(|| {
            plans.push(None);
            plans.len() - 1
        });
        plans[free] = Some(plan);
        Ok(PlanId(free as u32))
    }

    fn uninstall(&self, plan: PlanId) {
        if let Some(gone) = self.plans.borrow_mut().get_mut(plan.0 as usize).and_then(Option::take)
        {
            gone.ranges.destroy();
            self.count(|c| c.gpu_bytes -= gone.ranges_bytes);
        }
    }

    fn submit(
        &self,
        replays: &[Replay],
        submits: usize,
        read: Option<Region>,
    ) -> Result<LocalFuture<Result<Vec<u8>>>> {
        self.alive()?;
        self.replay(replays, submits, read)
    }

    fn profile(&self, replay: Replay) -> Result<LocalFuture<Result<Option<Vec<f64>>>>> {
        self.alive()?;
        self.timed_replay(replay)
    }

    fn watch(&self) {
        for filter in [
            wgpu::ErrorFilter::Validation,
            wgpu::ErrorFilter::OutOfMemory,
            wgpu::ErrorFilter::Internal,
        ] {
            self.scopes.borrow_mut().push(self.device.push_error_scope(filter));
        }
    }

    fn checked(&self) -> LocalFuture<Result<()>> {
        let mut popped = Vec::new();
        for _ in 0..3 {
            if let Some(scope) = self.scopes.borrow_mut().pop() {
                popped.push(scope.pop());
            }
        }
        let trouble = Arc::clone(&self.trouble);
        Box::pin(async move {
            let mut first = None;
            for scope in popped {
                if let Some(error) = scope.await {
                    first.get_or_insert(from_wgpu(&error));
                }
            }
            Self::settle(&trouble)?;
            first.map_or(Ok(()), Err)
        })
    }

    fn tuned(&self) -> Option<Vec<TunedProduct>> {
        self.tuned.borrow().clone()
    }

    fn set_tuned(&self, tuned: Option<Vec<TunedProduct>>) {
        self.tuned.replace(tuned);
    }

    fn now(&self) -> f64 {
        (self.clock)()
    }

    fn counters(&self) -> Counters {
        self.counters.get()
    }

    fn lost(&self) -> Option<String> {
        self.trouble.lock().ok().and_then(|trouble| trouble.lost.clone())
    }

    fn destroy(&self) {
        self.plans.borrow_mut().clear();
        for allocation in self.buffers.borrow_mut().drain(..).flatten() {
            allocation.buffer.destroy();
        }
        self.staging.clear();
        self.count(|c| c.gpu_bytes = 0);
        self.device.destroy();
    }
}
