//! Operations on tensors by themselves, without a model. Their plans are kept.

use crate::error::{Error, Result};
use crate::gpu::{BufferId, Gpu, LocalFuture, PlanId, Replay, queue_checked};
use crate::ops::{Operation, OperationKey, Role};
use crate::plan::{Buffer, BufferSizes, Plan};
use crate::session::memory::{self, MemoryBytes, Purpose};
use crate::session::resources::Resources;
use crate::session::throughput::{Throughput, Work};
use crate::session::weights::GpuRef;
use std::cell::RefCell;
use std::rc::Rc;

/// Plans kept. One holds three pipelines at most, 256 bytes of the GPU's memory, and some kilobytes of the
/// host's. A layer made of operations takes a dozen: forward, backward, decode and softmax at some sizes.
const MOST_PLANS: usize = 64;

/// Operations on one device, and the plans of those asked for last.
#[derive(Debug)]
pub struct Operations {
    gpu: GpuRef,
    /// The one used last is first.
    kept: RefCell<Vec<CachedPlan>>,
    /// Never measured: an operation reads nothing back.
    throughput: Throughput,
}

/// A plan, over the buffers of the call that used it last.
#[derive(Debug)]
struct CachedPlan {
    key: OperationKey,
    plan: Plan,
    installed: Option<PlanId>,
}

impl Operations {
    pub fn new(gpu: &Rc<dyn Gpu>) -> Self {
        let throughput = Throughput::cautious(gpu.capabilities());
        Self { gpu: GpuRef(Rc::clone(gpu)), kept: RefCell::default(), throughput }
    }

    /// Queues an operation; what it wrote may be read, or used by another, at once. `made` are the buffers
    /// of the tensors made for it, in the order of `Operation::made`. The future resolves to whether the
    /// GPU accepted all of it.
    ///
    /// # Errors
    /// `limit-exceeded`, `out-of-memory`, `device-lost`.
    pub fn run(
        self: &Rc<Self>,
        operation: &Operation,
        made: &[BufferId],
    ) -> Result<LocalFuture<Result<()>>> {
        let key = operation.key;
        let queued = queue_checked(&*self.gpu.0, || self.queue(operation, made));
        let ((), accepted) = queued.inspect_err(|_| self.forget(&key))?;
        let operations = Rc::clone(self);
        Ok(Box::pin(async move { accepted.await.inspect_err(|_| operations.forget(&key)) }))
    }

    /// Queues everything before anything is awaited: calls run in the order in which they are made.
    fn queue(&self, operation: &Operation, made: &[BufferId]) -> Result<()> {
        let gpu = &*self.gpu.0;
        let mut kept = self.kept.borrow_mut();
        self.find(&mut kept, operation.key)?;
        let CachedPlan { plan, installed, .. } = &mut kept[0];
        // Given back at the end of this function: the GPU keeps what submitted work uses.
        let scratch = self.scratch(operation, plan, installed.is_some())?;
        let resolve = |name| match given(operation, made, name) {
            Some(tensor) => Ok(tensor),
            None => scratch.get(name),
        };
        let id = match *installed {
            Some(id) => gpu.rebind(id, plan, &resolve).map(|()| id)?,
            None => *installed.insert(gpu.install(plan, &resolve)?),
        };
        let submits = self.throughput.submits(Work::of(plan), Work::of_largest(plan));
        gpu.submit(&[Replay::new(id, operation.key.rows())], submits, None).map(drop)
    }

    /// Brings the plan of a key to the front; it is made where there is none, and the plan used longest ago
    /// makes room for it.
    fn find(&self, kept: &mut Vec<CachedPlan>, key: OperationKey) -> Result<()> {
        if let Some(at) = kept.iter().position(|kept| kept.key == key) {
            kept[..=at].rotate_right(1);
            return Ok(());
        }
        let plan = key.plan(self.gpu.0.capabilities())?;
        while kept.len() >= MOST_PLANS {
            self.drop_plan(kept.pop());
        }
        kept.insert(0, CachedPlan { key, plan, installed: None });
        Ok(())
    }

    /// The buffers that only this call needs, the mask and the uniform written.
    fn scratch(&self, operation: &Operation, plan: &Plan, installed: bool) -> Result<Resources> {
        let gpu = &*self.gpu.0;
        let slots = (0..).map(Buffer::Slot).zip(plan.slots.iter().copied());
        let mut sizes: BufferSizes = slots.collect();
        let contents = [
            (Role::Mask, bytemuck::cast_slice(&operation.mask)),
            (Role::Geometry, operation.places.bytes()),
        ];
        let contents = contents.iter().filter(|(_, bytes)| !bytes.is_empty());
        let have = gpu.capabilities().limits.binding_bytes();
        for &(role, bytes) in contents.clone() {
            let bytes = bytes.len() as u64;
            if bytes > have {
                let name = "maxStorageBufferBindingSize";
                return Err(Error::limit(name, have, bytes, "the mask of an operation"));
            }
            sizes.insert(role.buffer(), bytes);
        }
        let asked = MemoryBytes::of_sizes(&sizes).with_ranges((!installed).then_some(plan));
        memory::check_memory(gpu, Purpose::Operation, &asked)?;
        let mut scratch = Resources::new(&self.gpu.0);
        for (&name, &bytes) in sizes.iter() {
            let label = match name {
                _ if name == Role::Mask.buffer() => "the mask of an operation",
                _ if name == Role::Geometry.buffer() => "the uniform of an operation",
                _ => "an operation's results in between",
            };
            scratch.add_as(label, name, bytes)?;
        }
        for &(role, bytes) in contents {
            gpu.write(scratch.get(role.buffer())?, 0, bytes)?;
        }
        Ok(scratch)
    }

    /// Drops the plan of a call that failed: its pipelines may be why.
    fn forget(&self, key: &OperationKey) {
        let mut kept = self.kept.borrow_mut();
        let at = kept.iter().position(|kept| kept.key == *key);
        self.drop_plan(at.map(|at| kept.remove(at)));
    }

    fn drop_plan(&self, gone: Option<CachedPlan>) {
        if let Some(id) = gone.and_then(|kept| kept.installed) {
            self.gpu.0.uninstall(id);
        }
    }
}

impl Drop for Operations {
    fn drop(&mut self) {
        for kept in self.kept.take() {
            self.drop_plan(Some(kept));
        }
    }
}

/// The buffer of a tensor, given or made, that a plan names.
fn given(operation: &Operation, made: &[BufferId], name: Buffer) -> Option<BufferId> {
    let Buffer::Given(role) = name else { return None };
    let new = operation.made.iter().position(|&made| made as u32 == role);
    let old = || operation.buffers.get(role as usize).copied().flatten().map(BufferId);
    new.and_then(|at| made.get(at).copied()).or_else(old)
}

#[cfg(test)]
mod tests;
