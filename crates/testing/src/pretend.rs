//! A device that claims other capabilities, so that whole models run with the kernels that another
//! adapter would get; or whose clock stands still, so that work is cut alike however busy the machine is.

use crate::caps::Capabilities;
use crate::error::Result;
use crate::gpu::{
    BufferCopy, BufferId, Counters, Gpu, LocalFuture, PlanId, Region, Replay, WgpuDevice,
};
use crate::kernels::{Kernel, TunedProduct};
use crate::plan::{Buffer, Plan};
use std::rc::Rc;

#[derive(Debug)]
pub(crate) struct Pretend {
    device: Rc<WgpuDevice>,
    caps: Capabilities,
    clock_runs: bool,
}

impl Pretend {
    /// `caps` must be within what the device has.
    pub fn gpu(device: &Rc<WgpuDevice>, caps: Capabilities) -> Rc<dyn Gpu> {
        Rc::new(Self { device: Rc::clone(device), caps, clock_runs: true })
    }

    /// The device itself, but nobody learns how fast it is: chunks and submits keep their first sizes.
    pub fn timeless(device: &Rc<WgpuDevice>) -> Rc<dyn Gpu> {
        let caps = device.capabilities().clone();
        Rc::new(Self { device: Rc::clone(device), caps, clock_runs: false })
    }
}

impl Gpu for Pretend {
    fn capabilities(&self) -> &Capabilities {
        &self.caps
    }

    fn create_buffer(&self, label: &str, bytes: u64) -> Result<BufferId> {
        self.device.create_buffer(label, bytes)
    }

    fn destroy_buffer(&self, buffer: BufferId) {
        self.device.destroy_buffer(buffer);
    }

    fn buffer_bytes(&self, buffer: BufferId) -> Option<u64> {
        self.device.buffer_bytes(buffer)
    }

    fn write(&self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<()> {
        self.device.write(buffer, offset, data)
    }

    fn copy(&self, copies: &[BufferCopy]) -> Result<()> {
        self.device.copy(copies)
    }

    fn yield_now(&self) -> LocalFuture<()> {
        self.device.yield_now()
    }

    fn prepare(&self, plans: &[&Plan]) -> LocalFuture<()> {
        self.device.prepare(plans)
    }

    fn compile(&self, kernel: &Kernel) -> LocalFuture<Result<()>> {
        self.device.compile(kernel)
    }

    fn install(&self, plan: &Plan, resolve: &dyn Fn(Buffer) -> Result<BufferId>) -> Result<PlanId> {
        self.device.install(plan, resolve)
    }

    fn rebind(
        &self,
        id: PlanId,
        plan: &Plan,
        resolve: &dyn Fn(Buffer) -> Result<BufferId>,
    ) -> Result<()> {
        self.device.rebind(id, plan, resolve)
    }

    fn uninstall(&self, plan: PlanId) {
        self.device.uninstall(plan);
    }

    fn submit(
        &self,
        replays: &[Replay],
        submits: usize,
        read: Option<Region>,
    ) -> Result<LocalFuture<Result<Vec<u8>>>> {
        self.device.submit(replays, submits, read)
    }

    fn profile(&self, replay: Replay) -> Result<LocalFuture<Result<Option<Vec<f64>>>>> {
        self.device.profile(replay)
    }

    fn push_error_scope(&self) {
        self.device.push_error_scope();
    }

    fn pop_error_scope(&self) -> LocalFuture<Result<()>> {
        self.device.pop_error_scope()
    }

    fn tuned(&self) -> Option<Vec<TunedProduct>> {
        self.device.tuned()
    }

    fn set_tuned(&self, tuned: Option<Vec<TunedProduct>>) {
        self.device.set_tuned(tuned);
    }

    fn now(&self) -> f64 {
        if self.clock_runs { self.device.now() } else { 0.0 }
    }

    fn counters(&self) -> Counters {
        self.device.counters()
    }

    fn lost(&self) -> Option<String> {
        self.device.lost()
    }

    /// The device belongs to the lane.
    fn destroy(&self) {}
}
