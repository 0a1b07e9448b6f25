//! Buffers that live and die together, looked up by the names plans use.

use crate::error::{Error, Result};
use crate::gpu::{BufferId, Gpu, PlanId};
use crate::plan::{Buffer, BufferSizes, Plan, allocated_bytes};
use std::collections::BTreeMap;
use std::mem;
use std::rc::Rc;

/// Owns buffers and installed plans; gives them back when dropped.
pub(super) struct Resources {
    gpu: Rc<dyn Gpu>,
    buffers: BTreeMap<Buffer, (BufferId, u64)>,
    plans: Vec<PlanId>,
    /// Bytes of the uniforms that the plans have brought with them.
    ranges: u64,
    /// Where it finds what it has not itself.
    others: Option<[Rc<Self>; 2]>,
}

impl std::fmt::Debug for Resources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resources")
            .field("buffers", &self.buffers)
            .field("plans", &self.plans)
            .finish()
    }
}

impl Resources {
    pub fn new(gpu: &Rc<dyn Gpu>) -> Self {
        Self::with(gpu, None)
    }

    /// None of its own yet, and those of `others`, which it keeps alive.
    pub fn over(gpu: &Rc<dyn Gpu>, others: [Rc<Self>; 2]) -> Self {
        Self::with(gpu, Some(others))
    }

    fn with(gpu: &Rc<dyn Gpu>, others: Option<[Rc<Self>; 2]>) -> Self {
        let (buffers, plans) = (BTreeMap::new(), Vec::new());
        Self { gpu: Rc::clone(gpu), buffers, plans, ranges: 0, others }
    }

    fn find(&self, name: Buffer) -> Option<(BufferId, u64)> {
        match (self.buffers.get(&name), &self.others) {
            (Some(own), _) => Some(*own),
            (None, Some([first, second])) => first.find(name).or_else(|| second.find(name)),
            (None, None) => None,
        }
    }

    /// Makes a zeroed buffer under a name.
    pub fn add(&mut self, name: Buffer, bytes: u64) -> Result<BufferId> {
        self.add_as(&format!("{name:?}"), name, bytes)
    }

    /// Makes a zeroed buffer with a label of its own, by which messages call it.
    pub fn add_as(&mut self, label: &str, name: Buffer, bytes: u64) -> Result<BufferId> {
        let id = self.gpu.create_buffer(label, bytes)?;
        if let Some((old, _)) = self.buffers.insert(name, (id, bytes)) {
            self.gpu.destroy_buffer(old);
        }
        Ok(id)
    }

    /// Makes a zeroed buffer for each of `sizes` that `others` have not.
    pub fn allocate(&mut self, sizes: &BufferSizes, others: &[&Self]) -> Result<()> {
        for (&name, &bytes) in sizes.iter() {
            if !others.iter().any(|other| other.has(name)) {
                self.add(name, bytes)?;
            }
        }
        Ok(())
    }

    pub fn get(&self, name: Buffer) -> Result<BufferId> {
        let found = self.find(name).map(|(id, _)| id);
        found.ok_or_else(|| Error::internal(format!("no buffer {name:?}")))
    }

    pub fn bytes_of(&self, name: Buffer) -> Option<u64> {
        self.find(name).map(|(_, bytes)| bytes)
    }

    /// Takes from `old` the buffers that it has no own one for. The other buffers of `old`, and its plans, are freed.
    pub fn inherit(&mut self, mut old: Self) {
        let (kept, replaced): (Vec<_>, _) =
            mem::take(&mut old.buffers).into_iter().partition(|(name, _)| !self.has(*name));
        old.buffers = BTreeMap::from_iter::<Vec<_>>(replaced);
        self.buffers.extend(kept);
    }

    pub fn has(&self, name: Buffer) -> bool {
        self.find(name).is_some()
    }

    /// Installs a plan over these buffers and, for names they lack, those of `others`.
    pub fn install(&mut self, plan: &Plan, others: &[&Self]) -> Result<PlanId> {
        let resolve = |name: Buffer| {
            let owner = std::iter::once(&*self).chain(others.iter().copied()).find(|r| r.has(name));
            owner.ok_or_else(|| Error::internal(format!("no buffer {name:?}")))?.get(name)
        };
        let id = self.gpu.install(plan, &resolve)?;
        self.plans.push(id);
        self.ranges += plan.ranges_bytes();
        Ok(id)
    }

    /// Bytes that the device has allocated for the buffers and the plans' uniforms.
    pub fn bytes(&self) -> u64 {
        let buffers = self.buffers.values().map(|&(_, bytes)| allocated_bytes(bytes));
        buffers.sum::<u64>() + self.ranges
    }
}

impl Drop for Resources {
    fn drop(&mut self) {
        for plan in self.plans.drain(..) {
            self.gpu.uninstall(plan);
        }
        for (_, (id, _)) in mem::take(&mut self.buffers) {
            self.gpu.destroy_buffer(id);
        }
    }
}
