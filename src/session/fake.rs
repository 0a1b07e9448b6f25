//! A GPU for tests that computes nothing: it counts, and its clock runs by what it is given to do.

use super::counting::uncounted;
use super::step::Step;
use crate::caps::{Capabilities, Target};
use crate::error::{Error, Result};
use crate::gpu::{BufferCopy, BufferId, Counters, Gpu, LocalFuture, PlanId, Region, Replay};
use crate::kernels::{self as k, KernelSpec, TunedProduct};
use crate::plan::{Buffer, Plan, allocated_bytes};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use tinyloom_gpu::cuts::Cuts;
use tinyloom_gpu::program::{Encoder, Program, encode};

pub(super) struct Fake {
    caps: Capabilities,
    /// Operations and bytes per millisecond.
    speed: f64,
    clock: Rc<Cell<f64>>,
    /// Until when it computes.
    busy: Cell<f64>,
    counters: Cell<Counters>,
    buffers: RefCell<HashMap<u32, u64>>,
    /// Every plan that was ever installed, with the buffer of its step, where it reads one.
    pub plans: RefCell<Vec<(Plan, Option<u32>)>>,
    /// The plans as a device encodes them.
    programs: RefCell<Vec<Rc<Program<(), ()>>>>,
    /// What all replays have encoded.
    pub encoded: Cell<Encoded>,
    /// What was last written of each step's position.
    positions: RefCell<HashMap<u32, u32>>,
    /// Milliseconds of every submit.
    pub submits: RefCell<Vec<f64>>,
    /// Milliseconds that a write costs the host.
    pub write: f64,
    yielded: Cell<f64>,
    /// The longest that the host has gone without a yield, as writes saw it.
    pub longest: Cell<f64>,
    /// Copies of buffers, in bytes.
    pub copied: Cell<u64>,
    /// Whether the next submit is refused, and whether the last one was.
    pub refuse: Cell<bool>,
    refused: Cell<bool>,
}

/// Commands that replays have encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Encoded {
    most_groups: u32,
    pub schedules: usize,
    pub pipelines: usize,
    pub bindings: usize,
    pub dispatches: usize,
    pub cuts: usize,
    /// Cuts after the copy of what is read.
    pub copies: usize,
}

impl Encoder<(), ()> for Encoded {
    fn most_groups(&self) -> u32 {
        self.most_groups
    }

    fn schedules(&mut self) {
        self.schedules += 1;
    }

    fn set_pipeline(&mut self, (): &()) {
        self.pipelines += 1;
    }

    fn set_bindings(&mut self, (): &()) {
        self.bindings += 1;
    }

    fn dispatch(&mut self, _: [u32; 2]) {
        self.dispatches += 1;
    }

    fn cut(&mut self) {
        self.cuts += 1;
    }

    fn cut_behind_copy(&mut self) -> Result<()> {
        self.copies += 1;
        Ok(())
    }
}

impl Fake {
    pub fn new(software: bool, speed: f64, write: f64) -> Rc<Self> {
        let caps = Capabilities { software, ..Capabilities::floor(Target::Native) };
        Self::with(caps, speed, write)
    }

    pub fn with(caps: Capabilities, speed: f64, write: f64) -> Rc<Self> {
        Rc::new(Self {
            caps,
            speed,
            clock: Rc::default(),
            busy: Cell::default(),
            counters: Cell::default(),
            buffers: RefCell::default(),
            plans: RefCell::default(),
            programs: RefCell::default(),
            encoded: Cell::default(),
            positions: RefCell::default(),
            submits: RefCell::default(),
            write,
            yielded: Cell::default(),
            longest: Cell::default(),
            copied: Cell::default(),
            refuse: Cell::default(),
            refused: Cell::default(),
        })
    }

    fn hold(&self, change: i64) {
        let counters = self.counters.get();
        let gpu_bytes = counters.gpu_bytes.strict_add_signed(change);
        self.counters.set(Counters { gpu_bytes, buffers: counters.buffers + 1, ..counters });
    }

    /// Checks that every slice is inside its buffer. An operation's buffers are bound whole, so they need only exist.
    fn bind(&self, plan: &Plan, resolve: &dyn Fn(Buffer) -> Result<BufferId>) -> Result<()> {
        for slice in plan.dispatches.iter().flat_map(|dispatch| &dispatch.slices) {
            if slice.buffer != Buffer::Ranges {
                let bytes = self.buffers.borrow()[&resolve(slice.buffer)?.0];
                let whole = matches!(slice.buffer, Buffer::Given(_));
                assert!(whole || slice.offset + slice.bytes <= bytes, "{slice:?} of {bytes}");
            }
        }
        Ok(())
    }

    /// Encodes replays as a device does: this is the host's work, and is counted.
    fn encode(&self, replays: &[Replay], submits: usize) -> Result<()> {
        let programs = self.programs.borrow();
        let mut encoded = self.encoded.get();
        encoded.most_groups = self.caps.limits.max_compute_workgroups_per_dimension;
        let find = |plan: PlanId| Ok(Rc::clone(&programs[plan.0 as usize]));
        encode(replays, submits, &find, &mut encoded)?;
        self.encoded.set(encoded);
        Ok(())
    }

    /// Takes the time that its speed gives.
    fn run(
        &self,
        replays: &[Replay],
        submits: usize,
        read: Option<Region>,
    ) -> Result<LocalFuture<Result<Vec<u8>>>> {
        let plans = self.plans.borrow();
        let mut dispatches = vec![];
        for Replay { plan, rows, keys, .. } in replays {
            let (plan, step) = &plans[plan.0 as usize];
            let position = step.map_or(0, |step| self.positions.borrow()[&step]);
            for dispatch in &plan.dispatches {
                let cost = dispatch.cost.of_rows(*rows, plan.tokens, *keys);
                let seen = keys_seen(&plan.kernels[dispatch.kernel].spec, *rows, position);
                let work = dispatch.cost.of_rows(*rows, plan.tokens, seen);
                dispatches.push((cost, work));
            }
        }
        let mut cuts = Cuts::new(dispatches.iter().map(|(cost, _)| cost).sum(), submits);
        let (mut time, mut took) = (0.0, 0.0);
        for (cost, work) in dispatches {
            if cuts.before(cost) {
                self.submits.borrow_mut().push(std::mem::take(&mut time));
            }
            time += work / self.speed;
            took += work / self.speed;
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

/// Positions that attention over a cache reads: it has them from the step, whatever a replay says.
fn keys_seen(spec: &KernelSpec, rows: usize, position: u32) -> usize {
    let (KernelSpec::AttentionForwardCached(k::AttentionForwardCached { attention, .. })
    | KernelSpec::AttentionProbabilities(k::AttentionProbabilities { attention })) = *spec
    else {
        return 0;
    };
    (position as usize + rows).min(attention.ring.unwrap_or(usize::MAX))
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
        if let (0, Some(position)) = (offset, self.positions.borrow_mut().get_mut(&buffer.0)) {
            *position = bytemuck::pod_read_unaligned::<Step>(data).position;
        }
        self.clock.set(self.clock.get() + self.write);
        self.longest.set(self.longest.get().max(self.clock.get() - self.yielded.get()));
        Ok(())
    }

    fn copy(&self, copies: &[BufferCopy]) -> Result<()> {
        let buffers = self.buffers.borrow();
        for &BufferCopy { from: Region { buffer, offset, bytes }, to, at } in copies {
            assert!(offset + bytes <= buffers[&buffer.0] && at + bytes <= buffers[&to.0]);
            self.copied.set(self.copied.get() + bytes);
        }
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
        self.bind(plan, resolve)?;
        self.hold(plan.ranges_bytes() as i64);
        let mut slices = plan.dispatches.iter().flat_map(|dispatch| &dispatch.slices);
        let step = slices.find(|slice| slice.buffer == Buffer::Step);
        let step = step.map(|slice| Ok(resolve(slice.buffer)?.0)).transpose()?;
        if let Some(step) = step {
            self.positions.borrow_mut().entry(step).or_default();
        }
        let bindings = vec![(); plan.dispatches.len()];
        let program = Program::new(plan, vec![(); plan.kernels.len()], bindings);
        self.programs.borrow_mut().push(Rc::new(program));
        self.plans.borrow_mut().push((plan.clone(), step));
        Ok(PlanId(self.plans.borrow().len() as u32 - 1))
    }

    fn rebind(
        &self,
        _: PlanId,
        plan: &Plan,
        resolve: &dyn Fn(Buffer) -> Result<BufferId>,
    ) -> Result<()> {
        self.bind(plan, resolve)
    }

    fn uninstall(&self, plan: PlanId) {
        self.hold(-(self.plans.borrow()[plan.0 as usize].0.ranges_bytes() as i64));
    }

    fn submit(
        &self,
        replays: &[Replay],
        submits: usize,
        read: Option<Region>,
    ) -> Result<LocalFuture<Result<Vec<u8>>>> {
        if self.refuse.take() {
            self.refused.set(true);
            let bytes = vec![0; read.map_or(0, |region| region.bytes as usize)];
            return Ok(Box::pin(std::future::ready(Ok(bytes))));
        }
        self.encode(replays, submits)?;
        uncounted(|| self.run(replays, submits, read))
    }

    fn profile(&self, _: Replay) -> Result<LocalFuture<Result<Option<Vec<f64>>>>> {
        Ok(Box::pin(std::future::ready(Ok(None))))
    }

    fn push_error_scope(&self) {}

    fn pop_error_scope(&self) -> LocalFuture<Result<()>> {
        let refused = self.refused.take().then(|| Error::internal("the GPU refused a command"));
        Box::pin(std::future::ready(refused.map_or(Ok(()), Err)))
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
