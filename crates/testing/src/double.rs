//! A double of a GPU: it executes plans dispatch by dispatch on the CPU, over the twins, and fails where
//! a test says so.
//!
//! It knows kernels by their [`KernelSpec`](crate::kernels::KernelSpec) and bindings by their names, and
//! nothing of models. What a device would refuse (a buffer bound past its end, an offset off its
//! alignment, one bound twice and written, bindings beyond the device's limits) it refuses too, as an error
//! of the call's scopes.

#[cfg(test)]
mod architecture_tests;
#[cfg(test)]
mod batch_tests;
#[cfg(test)]
mod dropout_tests;
#[cfg(test)]
mod family_tests;
#[cfg(test)]
mod fault_tests;
mod faults;
#[cfg(test)]
mod gate_gradient_tests;
#[cfg(test)]
mod generate_tests;
#[cfg(test)]
mod last_layers_tests;
#[cfg(test)]
mod layer_tests;
#[cfg(test)]
mod lookup_tests;
#[cfg(test)]
mod lora_tests;
mod memory;
#[cfg(test)]
mod mixed_tests;
#[cfg(test)]
mod objective_tests;
#[cfg(test)]
mod optimizer_tests;
#[cfg(test)]
mod packed_tests;
#[cfg(test)]
mod padding_tests;
#[cfg(test)]
mod parts_tests;
#[cfg(test)]
mod peft_tests;
#[cfg(test)]
mod plan_tests;
#[cfg(test)]
mod recovery_tests;
#[cfg(test)]
mod reference_tests;
mod run;
#[cfg(test)]
mod session_tests;
#[cfg(test)]
mod stored_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod underflow_tests;

pub use faults::Fault;

use crate::caps::{Capabilities, Target};
use crate::error::{Error, Result};
use crate::gpu::{BufferCopy, BufferId, Counters, Gpu, LocalFuture, PlanId, Region, Replay};
use crate::kernels::TunedProduct;
use crate::plan::{Buffer, Dispatch, Plan};
use faults::Faults;
use memory::{Bound, Memory, Operand};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

/// A plan whose buffers are known.
#[derive(Debug)]
struct Installed {
    plan: Plan,
    /// By dispatch and operand.
    bound: Vec<Vec<Operand>>,
}

/// A GPU on the CPU, with faults.
#[derive(Debug)]
pub struct Double {
    caps: Capabilities,
    memory: RefCell<Memory>,
    plans: RefCell<HashMap<PlanId, Rc<Installed>>>,
    ids: Cell<u32>,
    /// What the calls being watched were refused, the innermost last.
    error_scopes: RefCell<Vec<Vec<Error>>>,
    faults: Rc<Faults>,
    counters: Cell<Counters>,
    tuned: RefCell<Option<Vec<TunedProduct>>>,
    clock: Cell<f64>,
}

impl Double {
    /// A device with these capabilities. Timestamps it has none.
    pub fn new(mut caps: Capabilities) -> Rc<Self> {
        caps.features.timestamps = false;
        Rc::new(Self {
            caps,
            memory: RefCell::default(),
            plans: RefCell::default(),
            ids: Cell::default(),
            error_scopes: RefCell::default(),
            faults: Rc::default(),
            counters: Cell::default(),
            tuned: RefCell::default(),
            clock: Cell::default(),
        })
    }

    /// A device at WebGPU's default limits without optional features.
    pub fn floor() -> Rc<Self> {
        Self::new(Capabilities::floor(Target::Native))
    }

    /// Lets the call fail that is the `nth` of those that the fault concerns, from now on and counted
    /// from 0.
    pub fn fail(&self, fault: Fault, nth: usize) {
        self.faults.plan(fault, nth);
    }

    /// Keeps readbacks, and whether work was accepted, pending until [`Double::release`] or [`Double::lose`].
    pub fn hold(&self) {
        self.faults.hold();
    }

    /// Lets arrive what is held.
    pub fn release(&self) {
        self.faults.release();
    }

    /// Loses the device. Pending readbacks settle with `device-lost`.
    pub fn lose(&self, reason: &str) {
        self.faults.lose(reason);
    }

    /// Bytes of a buffer as they are.
    ///
    /// # Errors
    /// `internal` if there is no such buffer.
    pub fn bytes(&self, buffer: BufferId) -> Result<Vec<u8>> {
        Ok(bytemuck::cast_slice(self.memory.borrow().words(buffer)?).to_vec())
    }

    fn next_id(&self) -> u32 {
        self.ids.set(self.ids.get() + 1);
        self.ids.get()
    }

    fn count(&self, change: impl FnOnce(&mut Counters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    /// Reports what the device refused, as its innermost error scope would.
    fn refused(&self, error: Error) {
        let mut error_scopes = self.error_scopes.borrow_mut();
        error_scopes.last_mut().expect("GPU work outside of error scopes").push(error);
    }

    /// What each dispatch reads and writes.
    fn bind(
        &self,
        plan: &Plan,
        resolve: &dyn Fn(Buffer) -> Result<BufferId>,
    ) -> Result<Vec<Vec<Operand>>> {
        let bind = |dispatch: &Dispatch| {
            let memory = self.memory.borrow();
            let slices = dispatch.slices.iter().map(|slice| Bound::new(*slice, resolve, &memory));
            let slices = slices.collect::<Result<Vec<_>>>()?;
            let kernel = &plan.kernels[dispatch.kernel];
            if let Err(error) = memory.check(&kernel.bindings, &slices, &self.caps.limits) {
                let message = format!("the GPU refused a command: {}: {error}", dispatch.label);
                self.refused(Error::internal(message));
            }
            if dispatch.operands.is_empty() {
                return Ok(kernel.bindings.iter().copied().zip(slices).collect());
            }
            let operands = dispatch.operands.iter();
            operands
                .map(|&(name, slice)| Ok((name, Bound::new(slice, resolve, &memory)?)))
                .collect()
        };
        plan.dispatches.iter().map(bind).collect()
    }

    fn installed(&self, plan: PlanId) -> Result<Rc<Installed>> {
        let found = self.plans.borrow().get(&plan).map(Rc::clone);
        found.ok_or_else(|| Error::internal(format!("plan {} is not installed", plan.0)))
    }

    /// Some of a plan's dispatches.
    fn execute(&self, replay: &Replay, some: Range<usize>) -> Result<()> {
        let installed = self.installed(replay.plan)?;
        let most = self.caps.limits.max_compute_workgroups_per_dimension;
        for (dispatch, bound) in
            installed.plan.dispatches[some.clone()].iter().zip(&installed.bound[some])
        {
            let kernel = &installed.plan.kernels[dispatch.kernel];
            if kernel.grid.resolve(dispatch.range.rows_of(replay.rows), most)?.is_none() {
                continue;
            }
            let ranges = &installed.plan.ranges;
            run::dispatch(kernel, bound, ranges, &mut self.memory.borrow_mut())
                .map_err(|e| Error::internal(format!("{}: {}", dispatch.label, e.message)))?;
            self.count(|c| c.dispatches += 1);
        }
        Ok(())
    }

    /// The work of a submit, within error scopes.
    fn submitted(
        &self,
        replays: &[Replay],
        submits: usize,
        read: Option<Region>,
    ) -> Result<LocalFuture<Result<Vec<u8>>>> {
        self.count(|c| c.submits += submits.max(1) as u64);
        // What a refused submit would have filled is a fresh staging buffer: zeros.
        let mut data = vec![0; read.map_or(0, |region| region.bytes as usize)];
        if self.faults.strikes(Fault::RefusedSubmit) {
            self.refused(Error::internal("the GPU refused a command: the submit"));
        } else {
            let mut first = 0;
            if self.faults.strikes(Fault::RefusedPart) {
                assert!(submits > 1 || replays[0].early_submits() > 0, "a submit of one part");
                self.refused(Error::internal("the GPU refused a command: a part of the submit"));
                first = self.installed(replays[0].plan)?.plan.dispatches.len() / 2;
            }
            let copy = || read.map(|region| self.memory.borrow().read(region)).transpose();
            let mut copied = None;
            for replay in replays {
                let all = self.installed(replay.plan)?.plan.dispatches.len();
                let late = replay.copy_before.unwrap_or(all);
                self.execute(replay, std::mem::take(&mut first).max(replay.from)..late)?;
                if late < all && submits == 1 {
                    copied = copy()?;
                }
                self.execute(replay, late..all)?;
            }
            if copied.is_none() {
                copied = copy()?;
            }
            data = copied.unwrap_or(data);
        }
        let failed = read.is_some() && self.faults.strikes(Fault::FailedMap);
        let arrival = self.faults.arrival();
        let faults = Rc::clone(&self.faults);
        Ok(Box::pin(async move {
            if read.is_some() {
                arrival.await;
                faults.alive()?;
            }
            if failed {
                let message = "the GPU did not give bytes back: the map failed; call again";
                return Err(Error::internal(message));
            }
            Ok(data)
        }))
    }
}

impl Gpu for Double {
    fn capabilities(&self) -> &Capabilities {
        &self.caps
    }

    fn create_buffer(&self, label: &str, bytes: u64) -> Result<BufferId> {
        self.faults.alive()?;
        let bytes = bytes.next_multiple_of(16).max(16);
        let have = self.caps.limits.max_buffer_size;
        if bytes > have {
            return Err(Error::limit("maxBufferSize", have, bytes, label));
        }
        let id = BufferId(self.next_id());
        self.count(|c| {
            c.buffers += 1;
            c.gpu_bytes += bytes;
        });
        if self.faults.strikes(Fault::OutOfMemory) {
            let held = self.counters.get().gpu_bytes;
            self.refused(crate::gpu::no_memory(&format!("for {label}, {bytes} bytes"), held));
        }
        self.memory.borrow_mut().create(id, bytes);
        Ok(id)
    }

    fn destroy_buffer(&self, buffer: BufferId) {
        let bytes = self.memory.borrow_mut().destroy(buffer);
        self.count(|c| c.gpu_bytes -= bytes);
    }

    fn buffer_bytes(&self, buffer: BufferId) -> Option<u64> {
        self.memory.borrow().words(buffer).ok().map(|words| words.len() as u64 * 4)
    }

    fn write(&self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<()> {
        assert!(!self.error_scopes.borrow().is_empty(), "a write outside of error scopes");
        self.memory.borrow_mut().write(buffer, offset, data)
    }

    fn copy(&self, copies: &[BufferCopy]) -> Result<()> {
        self.faults.alive()?;
        self.count(|c| c.submits += 1);
        if self.faults.strikes(Fault::RefusedSubmit) {
            self.refused(Error::internal("the GPU refused a command: the copy"));
            return Ok(());
        }
        for &BufferCopy { from, to, at } in copies {
            let data = self.memory.borrow().read(from)?;
            self.memory.borrow_mut().write(to, at, &data)?;
        }
        Ok(())
    }

    fn yield_now(&self) -> LocalFuture<()> {
        Box::pin(std::future::ready(()))
    }

    fn prepare(&self, _plans: &[&Plan]) -> LocalFuture<()> {
        Box::pin(std::future::ready(()))
    }

    fn install(&self, plan: &Plan, resolve: &dyn Fn(Buffer) -> Result<BufferId>) -> Result<PlanId> {
        self.faults.alive()?;
        let bound = self.bind(plan, resolve)?;
        let id = PlanId(self.next_id());
        self.count(|c| {
            c.bind_groups += plan.groups().last().map_or(0, |last| last + 1) as u64;
            c.pipelines += plan.kernels.len() as u64;
        });
        let installed = Rc::new(Installed { plan: plan.clone(), bound });
        self.plans.borrow_mut().insert(id, installed);
        Ok(id)
    }

    fn rebind(
        &self,
        id: PlanId,
        plan: &Plan,
        resolve: &dyn Fn(Buffer) -> Result<BufferId>,
    ) -> Result<()> {
        self.faults.alive()?;
        self.installed(id)?;
        let bound = self.bind(plan, resolve)?;
        self.count(|c| c.bind_groups += plan.groups().last().map_or(0, |last| last + 1) as u64);
        let installed = Rc::new(Installed { plan: plan.clone(), bound });
        self.plans.borrow_mut().insert(id, installed);
        Ok(())
    }

    fn uninstall(&self, plan: PlanId) {
        self.plans.borrow_mut().remove(&plan);
    }

    fn submit(
        &self,
        replays: &[Replay],
        submits: usize,
        read: Option<Region>,
    ) -> Result<LocalFuture<Result<Vec<u8>>>> {
        self.faults.alive()?;
        let work = || self.submitted(replays, submits, read);
        if self.error_scopes.borrow().is_empty() {
            crate::gpu::submit_checked(self, work)
        } else {
            work()
        }
    }

    fn profile(&self, _replay: Replay) -> Result<LocalFuture<Result<Option<Vec<f64>>>>> {
        self.faults.alive()?;
        Ok(Box::pin(async { Ok(None) }))
    }

    fn push_error_scope(&self) {
        self.error_scopes.borrow_mut().push(vec![]);
    }

    fn pop_error_scope(&self) -> LocalFuture<Result<()>> {
        let refused = self.error_scopes.borrow_mut().pop().expect("no error scope is open");
        let (arrival, faults) = (self.faults.arrival(), Rc::clone(&self.faults));
        Box::pin(async move {
            arrival.await;
            faults.alive()?;
            refused.into_iter().next().map_or(Ok(()), Err)
        })
    }

    fn tuned(&self) -> Option<Vec<TunedProduct>> {
        self.tuned.borrow().clone()
    }

    fn set_tuned(&self, tuned: Option<Vec<TunedProduct>>) {
        self.tuned.replace(tuned);
    }

    /// A microsecond later at each call.
    fn now(&self) -> f64 {
        self.clock.set(self.clock.get() + 1e-3);
        self.clock.get()
    }

    fn counters(&self) -> Counters {
        self.counters.get()
    }

    fn lost(&self) -> Option<String> {
        self.faults.reason()
    }

    fn destroy(&self) {
        self.plans.borrow_mut().clear();
        self.memory.replace(Memory::default());
        self.count(|c| c.gpu_bytes = 0);
        self.lose("Destroyed: by its owner");
    }
}
