//! How fast the GPU is, as far as that has been seen, and how work is cut accordingly; yields in work
//! on the host's own thread.

use crate::caps::Capabilities;
use crate::error::Result;
use crate::gpu::Gpu;
use crate::plan::{Cost, Dispatch, Plan};
use std::cell::Cell;

/// A submit longer than this risks the driver's watchdog and freezes the page's compositor.
pub(super) const SUBMIT_MILLISECONDS: f64 = 100.0;
/// Most submits of a micro-step with its update, and of an evaluation's batch.
pub(super) const MOST_SUBMITS: usize = 64;
/// Work shorter than this is queued without waiting for what was queued before.
const BRIEF_MILLISECONDS: f64 = 10.0;
/// Work on the host's thread ends after this: a page shows 60 frames a second, and freezes at 50.
const PIECE_MILLISECONDS: f64 = 12.0;

/// Operations per second to begin with: of a slow GPU, or of a CPU.
pub(super) fn first_guess(caps: &Capabilities) -> f64 {
    if caps.software { 3e9 } else { 3e11 }
}

/// Operations per second of the slowest GPU that work is cut for, where nothing is measured.
const SLOWEST_GPU: f64 = 3e10;

/// One result changes an expectation by no more: a kernel that runs for the first time may take a
/// hundred times as long as ever after.
const MOST_CHANGE: f64 = 4.0;

/// Work of the GPU, in operations and bytes moved.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Work {
    /// Arithmetic, in proportion to the rows of a batch.
    pub flops: f64,
    /// What few rows take too.
    pub fixed: f64,
}

impl Work {
    pub fn of(plan: &Plan) -> Self {
        plan.dispatches.iter().map(Self::of_dispatch).fold(Self::default(), Self::plus)
    }

    pub fn of_dispatch(dispatch: &Dispatch) -> Self {
        Self { flops: dispatch.cost.flops, fixed: dispatch.cost.bytes + Cost::DISPATCH }
    }

    /// No dispatch of the plan has more of either.
    pub fn of_largest(plan: &Plan) -> Self {
        plan.dispatches.iter().map(Self::of_dispatch).fold(Self::default(), Self::max)
    }

    pub fn plus(self, other: Self) -> Self {
        Self { flops: self.flops + other.flops, fixed: self.fixed + other.fixed }
    }

    pub fn max(self, other: Self) -> Self {
        Self { flops: self.flops.max(other.flops), fixed: self.fixed.max(other.fixed) }
    }

    pub fn times(self, times: usize) -> Self {
        Self { flops: self.flops * times as f64, fixed: self.fixed * times as f64 }
    }

    fn units(self) -> f64 {
        self.flops + self.fixed
    }
}

/// Milliseconds for each unit of one kind of work.
#[derive(Debug)]
pub(super) struct Throughput {
    per_unit: Cell<f64>,
    measured: Cell<bool>,
    /// When the last result was there.
    ended: Cell<f64>,
    /// What has been sent since without a result to wait for.
    unread: Cell<Work>,
}

/// Work on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    work: Work,
    at: f64,
}

impl Throughput {
    pub fn new(caps: &Capabilities) -> Self {
        let per_unit = Cell::new(1e3 / first_guess(caps));
        Self {
            per_unit,
            measured: Cell::new(false),
            ended: Cell::new(f64::NEG_INFINITY),
            unread: Cell::default(),
        }
    }

    /// For work whose time nobody learns: as slow as a GPU may be. A submit more costs little beside it.
    pub fn cautious(caps: &Capabilities) -> Self {
        let throughput = Self::new(caps);
        throughput.per_unit.set(1e3 / first_guess(caps).min(SLOWEST_GPU));
        throughput
    }

    /// As if `units` units of work had been seen to take a millisecond.
    #[cfg(feature = "testing")]
    pub fn pretend(&self, units: f64) {
        self.per_unit.set(1.0 / units);
    }

    /// Milliseconds that the GPU is expected to take.
    pub fn predict(&self, work: Work) -> f64 {
        self.per_unit.get() * work.units()
    }

    /// Submits for work whose largest dispatch is `largest`. One ends with the dispatch that reaches its share, so that
    /// it may be longer than that by one dispatch. A fifth is left, since no two kernels reach the same speed.
    pub fn submits(&self, work: Work, largest: Work) -> usize {
        let whole = self.predict(work);
        if whole <= SUBMIT_MILLISECONDS {
            return 1;
        }
        let share = 0.8 * SUBMIT_MILLISECONDS - self.predict(largest);
        (whole / share.max(0.2 * SUBMIT_MILLISECONDS)).ceil() as usize
    }

    /// Whether work is known to take so little time that nobody need wait for it.
    pub fn is_brief(&self, work: Work) -> bool {
        self.measured.get() && self.predict(self.unread.get().plus(work)) < BRIEF_MILLISECONDS
    }

    /// Notes work that is sent with no result to wait for.
    pub fn unread(&self, work: Work) {
        self.unread.set(self.unread.get().plus(work));
    }

    /// Notes work whose result is to come.
    pub fn sent(&self, gpu: &dyn Gpu, work: Work) -> Sent {
        Sent { work: self.unread.take().plus(work), at: gpu.now() }
    }

    /// Notes that the GPU was busy with something else until now.
    pub fn waited(&self, gpu: &dyn Gpu) {
        self.ended.set(gpu.now());
    }

    /// Awaits a result, and learns from how long it took: since it was sent or, where it waited for
    /// another, since that was there. From work that failed it learns nothing. Where the clock has not
    /// moved, the work counts with what is sent next.
    pub async fn arrival<T>(
        &self,
        gpu: &dyn Gpu,
        sent: Sent,
        result: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let asked = gpu.now();
        let result = result.await;
        let now = gpu.now();
        let took = now - sent.at.max(self.ended.replace(now));
        let result = result?;
        if took <= 0.0 {
            self.unread(sent.work);
            return Ok(result);
        }
        // A result that had been there before it was asked for took less, nobody knows how much.
        let waited = now - asked > 0.5;
        if waited || took < self.predict(sent.work) {
            let (now, seen) = (self.per_unit.get(), took / sent.work.units());
            self.measured.set(true);
            self.per_unit.set((0.5 * (now + seen)).clamp(now / MOST_CHANGE, now * MOST_CHANGE));
        }
        Ok(result)
    }
}

/// Gives the host its thread back between pieces of work.
pub(super) struct PageYields<'a> {
    gpu: &'a dyn Gpu,
    since: f64,
}

impl<'a> PageYields<'a> {
    pub fn new(gpu: &'a dyn Gpu) -> Self {
        Self { gpu, since: gpu.now() }
    }

    /// To be awaited after every millisecond or so of work; tells whether it has paused.
    pub async fn yield_to_page(&mut self) -> bool {
        if self.gpu.now() - self.since < PIECE_MILLISECONDS {
            return false;
        }
        self.gpu.yield_now().await;
        self.since = self.gpu.now();
        true
    }
}
