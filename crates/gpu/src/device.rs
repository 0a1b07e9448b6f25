//! The wgpu backend: WebGPU in a browser or in Node, Vulkan, Metal or DX12 natively.

use super::adapter::{self, AdapterFacts, DeviceRequest};
use super::program::Program;
use super::{BufferCopy, BufferId, Counters, Gpu, LocalFuture, PlanId, Region, Replay};
use crate::caps::Capabilities;
use crate::error::{Error, Result};
use crate::kernels::{Kernel, TunedProduct};
use crate::plan::{Buffer, Dispatch, Plan, RANGE_STRIDE, allocated_bytes};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

#[cfg(target_arch = "wasm32")]
mod browser;
mod device_loss;
#[cfg(feature = "testing")]
mod installed;
mod pipelines;
mod readback;
#[cfg(target_arch = "wasm32")]
mod readback_poller;
mod replay;
mod scopes;

use device_loss::DeviceLoss;
#[cfg(feature = "testing")]
pub use installed::Installed;
use pipelines::Pipelines;
use readback::StagingPool;
use replay::InstalledPlan;
use scopes::CallScopes;

/// Buffers up to this size may also be bound as uniforms.
const UNIFORM_BYTES: u64 = 64 << 10;

struct Allocation {
    buffer: wgpu::Buffer,
    bytes: u64,
}

/// A device and everything made on it.
pub struct WgpuDevice {
    caps: Capabilities,
    device: wgpu::Device,
    queue: wgpu::Queue,
    buffers: RefCell<BTreeMap<BufferId, Allocation>>,
    pipelines: Rc<Pipelines>,
    plans: RefCell<BTreeMap<PlanId, InstalledPlan>>,
    /// Buffers and plans made so far: no number is given twice.
    ids: Cell<u32>,
    /// Calls whose error scopes are open, the innermost last.
    error_scopes: RefCell<Vec<CallScopes>>,
    calls: Cell<u64>,
    staging: Rc<StagingPool>,
    loss: DeviceLoss,
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
        let loss = DeviceLoss::new(&device);
        // All work is in error scopes, so an error that arrives here comes from other code on this device.
        // In a browser it is for the page to catch.
        #[cfg(not(target_arch = "wasm32"))]
        device.on_uncaptured_error(std::sync::Arc::new(|error: wgpu::Error| {
            eprintln!("tinyloom: other code caused an error on its GPU device: {error}");
        }));
        let counters = Rc::new(Cell::new(Counters::default()));
        Ok(Rc::new(Self {
            caps,
            staging: Rc::new(StagingPool::new(&device, &queue, clock)),
            pipelines: Rc::new(Pipelines::new(device.clone(), Rc::clone(&counters))),
            device,
            queue,
            buffers: RefCell::default(),
            plans: RefCell::default(),
            ids: Cell::default(),
            error_scopes: RefCell::default(),
            calls: Cell::default(),
            loss,
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
        self.loss.when()
    }

    /// Has a text checked; errors arrive as those of an installation do.
    #[cfg(feature = "testing")]
    pub fn check_text(&self, name: &str, text: String) {
        drop(self.pipelines.module(name, text));
    }

    /// The kernels installed on any device of this thread since the last call.
    #[cfg(feature = "testing")]
    pub fn take_installed() -> Installed {
        installed::take()
    }

    /// Sets how many pipelines are kept that no plan uses.
    #[cfg(feature = "testing")]
    pub fn keep_unused(&self, most: usize) {
        self.pipelines.set_most_unused(most);
    }

    fn count(&self, change: impl FnOnce(&mut Counters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    fn with_buffer<T>(&self, id: BufferId, use_it: impl FnOnce(&Allocation) -> T) -> Result<T> {
        let buffers = self.buffers.borrow();
        let found = buffers.get(&id).map(use_it);
        // Work of a lost device may outlive its buffers: then the loss is the cause.
        found.ok_or_else(|| match self.loss.alive() {
            Err(lost) => lost,
            Ok(()) => Error::internal(format!("buffer {} does not exist", id.0)),
        })
    }

    /// A number that no buffer or plan has had.
    fn next_id(&self) -> Result<u32> {
        let next = self.ids.get().checked_add(1);
        let next = next.ok_or_else(|| {
            Error::internal("this runtime has made 2^32 buffers and plans; create another")
        })?;
        self.ids.set(next);
        Ok(next)
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
            let whole = matches!(slice.buffer, Buffer::Given(_));
            let bytes = if whole { None } else { wgpu::BufferSize::new(slice.bytes) };
            bound.push((buffer, slice.offset, bytes));
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

    fn make_ranges(&self, plan: &Plan) -> Result<wgpu::Buffer> {
        let bytes = plan.ranges_bytes();
        let buffer = self.allocate(&wgpu::BufferDescriptor {
            label: Some("ranges"),
            size: bytes,
            usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        self.count(|c| c.gpu_bytes += bytes);
        for (offset, range) in (0..).step_by(RANGE_STRIDE as usize).zip(&plan.ranges) {
            if let Err(error) = self.write_raw(&buffer, offset, bytemuck::bytes_of(range)) {
                self.drop_ranges(&buffer);
                return Err(error);
            }
        }
        Ok(buffer)
    }

    fn drop_ranges(&self, ranges: &wgpu::Buffer) {
        ranges.destroy();
        self.count(|c| c.gpu_bytes -= ranges.size());
    }

    /// Makes the bind groups of a plan.
    fn bind_all(
        &self,
        plan: &Plan,
        resolve: &dyn Fn(Buffer) -> Result<BufferId>,
        ranges: &wgpu::Buffer,
    ) -> Result<Vec<wgpu::BindGroup>> {
        let mut bound = vec![];
        for (dispatch, group) in plan.dispatches.iter().zip(plan.groups()) {
            if group == bound.len() {
                let kernel = &plan.kernels[dispatch.kernel];
                bound.push(self.bind(kernel, dispatch, resolve, ranges)?);
            }
        }
        Ok(bound)
    }

    #[cfg(not(target_arch = "wasm32"))]
    fn write_raw(&self, buffer: &wgpu::Buffer, offset: u64, data: &[u8]) -> Result<()> {
        self.queue.write_buffer(buffer, offset, data);
        Ok(())
    }

    #[cfg(target_arch = "wasm32")]
    fn write_raw(&self, buffer: &wgpu::Buffer, offset: u64, data: &[u8]) -> Result<()> {
        browser::write_buffer(&self.queue, buffer, offset, data)
    }
}

#[cfg(not(target_arch = "wasm32"))]
fn native_clock() -> f64 {
    static START: std::sync::LazyLock<std::time::Instant> =
        std::sync::LazyLock::new(std::time::Instant::now);
    START.elapsed().as_secs_f64() * 1e3
}

impl Gpu for WgpuDevice {
    fn capabilities(&self) -> &Capabilities {
        &self.caps
    }

    fn create_buffer(&self, label: &str, bytes: u64) -> Result<BufferId> {
        self.loss.alive()?;
        let bytes = allocated_bytes(bytes);
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
        let id = BufferId(self.next_id()?);
        let buffer = self.allocate(&descriptor);
        self.count(|c| c.gpu_bytes += bytes);
        self.buffers.borrow_mut().insert(id, Allocation { buffer, bytes });
        Ok(id)
    }

    fn destroy_buffer(&self, buffer: BufferId) {
        if let Some(gone) = self.buffers.borrow_mut().remove(&buffer) {
            gone.buffer.destroy();
            self.count(|c| c.gpu_bytes -= gone.bytes);
        }
    }

    fn buffer_bytes(&self, buffer: BufferId) -> Option<u64> {
        self.with_buffer(buffer, |allocation| allocation.bytes).ok()
    }

    fn write(&self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<()> {
        debug_assert!(self.has_error_scope(), "a write outside of error scopes");
        self.with_buffer(buffer, |allocation| {
            if offset + data.len() as u64 > allocation.bytes {
                return Err(Error::internal("a write past the end of a buffer"));
            }
            self.write_raw(&allocation.buffer, offset, data)
        })?
    }

    fn copy(&self, copies: &[BufferCopy]) -> Result<()> {
        self.loss.alive()?;
        self.copy_buffers(copies)
    }

    #[cfg(not(target_arch = "wasm32"))]
    fn yield_now(&self) -> LocalFuture<()> {
        Box::pin(std::future::ready(()))
    }

    #[cfg(target_arch = "wasm32")]
    fn yield_now(&self) -> LocalFuture<()> {
        Box::pin(crate::host::next_task())
    }

    fn prepare(&self, plans: &[&Plan]) -> LocalFuture<()> {
        // On a CPU side by side takes 2.5 times as long as one after the other (SwiftShader, two cores).
        if self.caps.software {
            return Box::pin(std::future::ready(()));
        }
        self.pipelines.prepare(plans.iter().flat_map(|plan| &plan.kernels))
    }

    #[cfg(target_arch = "wasm32")]
    fn compile(&self, kernel: &Kernel) -> LocalFuture<Result<()>> {
        let (compiled, loss) = (self.pipelines.prepare(std::iter::once(kernel)), self.loss.clone());
        Box::pin(async move {
            compiled.await;
            loss.alive()
        })
    }

    #[cfg(not(target_arch = "wasm32"))]
    fn compile(&self, kernel: &Kernel) -> LocalFuture<Result<()>> {
        self.open_scopes();
        if self.pipelines.get(kernel, self.call()).1 {
            self.note_compiled(&kernel.wgsl);
        }
        self.close_scopes()
    }

    fn install(&self, plan: &Plan, resolve: &dyn Fn(Buffer) -> Result<BufferId>) -> Result<PlanId> {
        self.loss.alive()?;
        let id = PlanId(self.next_id()?);
        let call = self.call();
        let mut pipelines = Vec::with_capacity(plan.kernels.len());
        for kernel in &plan.kernels {
            let (pipeline, compiled) = self.pipelines.get(kernel, call);
            if compiled {
                self.note_compiled(&kernel.wgsl);
            }
            pipelines.push(pipeline);
        }
        let ranges = self.make_ranges(plan)?;
        let bind_groups = match self.bind_all(plan, resolve, &ranges) {
            Ok(bind_groups) => bind_groups,
            Err(error) => {
                self.drop_ranges(&ranges);
                return Err(error);
            }
        };
        let program = Rc::new(Program::new(plan, pipelines, bind_groups));
        self.plans.borrow_mut().insert(id, InstalledPlan { program, ranges });
        Ok(id)
    }

    fn rebind(
        &self,
        id: PlanId,
        plan: &Plan,
        resolve: &dyn Fn(Buffer) -> Result<BufferId>,
    ) -> Result<()> {
        self.loss.alive()?;
        let program = self.program(id)?;
        let ranges = self.plans.borrow()[&id].ranges.clone();
        program.bindings.replace(self.bind_all(plan, resolve, &ranges)?);
        Ok(())
    }

    fn uninstall(&self, plan: PlanId) {
        let gone = self.plans.borrow_mut().remove(&plan);
        if let Some(gone) = gone {
            self.drop_ranges(&gone.ranges);
            drop(gone);
            self.pipelines.trim();
        }
    }

    fn submit(
        &self,
        replays: &[Replay],
        submits: usize,
        read: Option<Region>,
    ) -> Result<LocalFuture<Result<Vec<u8>>>> {
        self.loss.alive()?;
        self.in_error_scope(|| self.replay(replays, submits, read))
    }

    fn profile(&self, replay: Replay) -> Result<LocalFuture<Result<Option<Vec<f64>>>>> {
        self.loss.alive()?;
        self.in_error_scope(|| self.timed_replay(replay))
    }

    fn push_error_scope(&self) {
        self.open_scopes();
    }

    fn pop_error_scope(&self) -> LocalFuture<Result<()>> {
        self.close_scopes()
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
        self.loss.reason()
    }

    fn destroy(&self) {
        self.plans.take();
        for (_, allocation) in self.buffers.take() {
            allocation.buffer.destroy();
        }
        self.staging.clear();
        self.count(|c| c.gpu_bytes = 0);
        self.device.destroy();
    }
}
