//! A GPU for tests that computes nothing: it counts, and its clock runs by what it is given to do.

use super::counting::uncounted;
use crate::caps::{Capabilities, Target};
use crate::error::Result;
use crate::gpu::{BufferId, Counters, Gpu, LocalFuture, PlanId, Region, Replay};
use crate::kernels::TunedProduct;
use crate::plan::{Buffer, Plan, allocated_bytes};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

pub(super) struct Fake {
    caps: Capabilities,
    /// Operations and bytes per millisecond.
    speed: f64,
    clock: Rc<Cell<f64>>,
    /// Until when it computes.
    busy: Cell<f64>,
    counters: Cell<Counters>,
    buffers: RefCell<HashMap<u32, u64>>,
    plans: RefCell<Vec<Plan>>,
    /// Milliseconds of every submit.
    pub submits: RefCell<Vec<f64>>,
    /// Milliseconds that a write costs the host.
    pub write: f64,
    yielded: Cell<f64>,
    /// The longest that the host has gone without a yield, as writes saw it.
    pub longest: Cell<f64>,
    /// Copies of buffers, in bytes.
    pub copied: Cell<u64>,
}

impl Fake {
    pub fn new(software: bool, speed: f64, write: f64) -> Rc<Self> {
        Rc::new(Self {
            caps: Capabilities { software, ..Capabilities::floor(Target::Native) },
            speed,
            clock: Rc::default(),
            busy: Cell::default(),
            counters: Cell::default(),
            buffers: RefCell::default(),
            plans: RefCell::default(),
            submits: RefCell::default(),
            write,
            yielded: Cell::default(),
            longest: Cell::default(),
            copied: Cell::default(),
        })
    }

    fn hold(&self, change: i64) {
        let counters = self.counters.get();
        let gpu_bytes = counters.gpu_bytes.strict_add_signed(change);
        self.counters.set(Counters { gpu_bytes, buffers: counters.buffers + 1, ..counters });
    }

    /// Cuts as the real one does.
    fn run(
        &self,
        replays: &[Replay],
        submits: usize,
        read: Option<Region>,
    ) -> Result<LocalFuture<Result<Vec<u8>>>> {
        let plans = self.plans.borrow();
        let mut dispatches = vec![];
        for Replay { plan, rows } in replays {
            let plan = &plans[plan.0 as usize];
            let share = *rows as f64 / plan.tokens as f64;
            for dispatch in &plan.dispatches {
                let cost = dispatch.cost;
                dispatches.push((cost.flops + cost.bytes, cost.flops * share + cost.bytes));
            }
        }
        let total: f64 = dispatches.iter().map(|(weight, _)| weight).sum();
        let (mut done, mut submit, mut time, mut took) = (0.0, 1, 0.0, 0.0);
        for (weight, work) in dispatches {
            if done >= total * submit as f64 / submits as f64 && submit < submits {
                self.submits.borrow_mut().push(std::mem::take(&mut time));
                submit += 1;
            }
            done += weight;
            let work = (work + super::pace::DISPATCH) / self.speed;
            time += work;
            took += work;
        }
        self.submits.borrow_mut().push(time);
        let bytes = vec![0; read.map_or(0, |region| region.bytes as usize)];
        let clock = Rc::clone(&self.clock);
        let end = self.busy.get().max(clock.get()) + took;
        self.busy.set(end);
        Ok(Box::pin(async move {
            if read.is_some() {
                clock.set(end.max(clock.get()));
            }
            Ok(bytes)
        }))
    }
}

impl Gpu for Fake {
    fn capabilities(&self) -> &Capabilities {
        &self.caps
    }

    fn create_buffer(&self, _: &str, bytes: u64) -> Result<BufferId> {
        let bytes = allocated_bytes(bytes);
        self.hold(bytes as i64);
        let id = self.counters.get().buffers as u32;
        self.buffers.borrow_mut().insert(id, bytes);
        Ok(BufferId(id))
    }

    fn destroy_buffer(&self, buffer: BufferId) {
        let bytes = self.buffers.borrow_mut().remove(&buffer.0).expect("a buffer");
        self.hold(-(bytes as i64));
    }

    fn buffer_bytes(&self, buffer: BufferId) -> Option<u64> {
        self.buffers.borrow().get(&buffer.0).copied()
    }

    fn write(&self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<()> {
        assert!(offset + data.len() as u64 <= self.buffers.borrow()[&buffer.0]);
        self.clock.set(self.clock.get() + self.write);
        self.longest.set(self.longest.get().max(self.clock.get() - self.yielded.get()));
        Ok(())
    }

    fn copy(&self, from: BufferId, to: BufferId, bytes: u64) -> Result<()> {
        let buffers = self.buffers.borrow();
        assert!(bytes <= buffers[&from.0] && bytes <= buffers[&to.0]);
        self.copied.set(self.copied.get() + bytes);
        Ok(())
    }

    fn yield_now(&self) -> LocalFuture<()> {
        self.yielded.set(self.clock.get());
        Box::pin(std::future::ready(()))
    }

    fn prepare(&self, _: &[&Plan]) -> LocalFuture<()> {
        Box::pin(std::future::ready(()))
    }

    fn install(&self, plan: &Plan, resolve: &dyn Fn(Buffer) -> Result<BufferId>) -> Result<PlanId> {
        for slice in plan.dispatches.iter().flat_map(|dispatch| &dispatch.slices) {
            if slice.buffer != Buffer::Ranges {
                let bytes = self.buffers.borrow()[&resolve(slice.buffer)?.0];
                assert!(slice.offset + slice.bytes <= bytes, "{slice:?} of {bytes}");
            }
        }
        self.hold(plan.ranges_bytes() as i64);
        self.plans.borrow_mut().push(plan.clone());
        Ok(PlanId(self.plans.borrow().len() as u32 - 1))
    }

    fn uninstall(&self, plan: PlanId) {
        self.hold(-(self.plans.borrow()[plan.0 as usize].ranges_bytes() as i64));
    }

    fn submit(
        &self,
        replays: &[Replay],
        submits: usize,
        read: Option<Region>,
    ) -> Result<LocalFuture<Result<Vec<u8>>>> {
        uncounted(|| self.run(replays, submits, read))
    }

    fn profile(&self, _: Replay) -> Result<LocalFuture<Result<Option<Vec<f64>>>>> {
        Ok(Box::pin(std::future::ready(Ok(None))))
    }

    fn watch(&self) {}

    fn checked(&self) -> LocalFuture<Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn tuned(&self) -> Option<Vec<TunedProduct>> {
        None
    }

    fn set_tuned(&self, _: Option<Vec<TunedProduct>>) {}

    fn now(&self) -> f64 {
        self.clock.get()
    }

    fn counters(&self) -> Counters {
        self.counters.get()
    }

    fn lost(&self) -> Option<String> {
        None
    }

    fn destroy(&self) {}
}
