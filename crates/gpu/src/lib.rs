//! A part of [tinyloom](https://docs.rs/tinyloom), without a promise of stability of its own.
//!
//! The GPU behind a small trait: buffers, compiled plans, replays, readbacks, errors. Knows nothing
//! of models; plans and sessions see nothing of wgpu.

#![warn(missing_debug_implementations)]

mod adapter;
mod counters;
pub mod cuts;
mod device;
#[cfg(target_arch = "wasm32")]
pub mod host;
pub mod program;

pub use adapter::{AdapterFacts, DeviceRequest, LimitsRequest, PowerPreference, RequestedFeatures};
pub use counters::Counters;
#[cfg(feature = "testing")]
pub use device::Installed;
pub use device::WgpuDevice;

// What this crate uses of those below it.
use tinyloom_kernels::{caps, kernels, plan};
use tinyloom_model::error;

use crate::caps::Capabilities;
use crate::error::{Error, ErrorCode, Result};
use crate::kernels::{Kernel, TunedProduct};
use crate::plan::{Buffer, Plan};
use std::future::Future;
use std::pin::Pin;

pub type LocalFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// A buffer of the device; a storage, uniform, copy source and copy destination at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u32);

/// A plan with its pipelines and bind groups made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PlanId(pub u32);

/// Replays a plan for a batch of `rows` token rows.
#[derive(Clone, Copy, Debug)]
pub struct Replay {
    pub plan: PlanId,
    pub rows: usize,
    /// Positions of a cache that the last row sees, to share out the cost; 0 without one.
    pub keys: usize,
    /// Dispatches before which a submit ends, so that the GPU begins while the rest is encoded. What dispatches before a cut
    /// write counts only once the whole replay is accepted. 0 is no cut. Unused where `submits` is more than 1.
    pub cuts: [usize; 3],
    /// The dispatch before which the bytes to read are copied. They can be used while the GPU runs the rest, which does
    /// not write them. None, or where `submits` is more than 1: the copy comes last.
    pub copy_before: Option<usize>,
    /// The first dispatch that runs. What those before it write is there already.
    pub from: usize,
}

impl Replay {
    /// A replay of a plan that reads no cache, or whose cost does not depend on how much of it.
    pub const fn new(plan: PlanId, rows: usize) -> Self {
        Self { plan, rows, keys: 0, cuts: [0; 3], copy_before: None, from: 0 }
    }

    /// Sends the first `early` dispatches ahead in submits of their own: `first` dispatches keep the GPU busy while
    /// the others of a quarter are encoded, that quarter while the others of `early` are, and these while the rest is.
    pub fn sent_early(self, early: usize, first: usize) -> Self {
        let first = if first <= early { first } else { 0 };
        Self { cuts: [first, early / 4, early], ..self }
    }

    /// Whether a submit ends before this dispatch.
    pub fn cuts_before(&self, dispatch: usize) -> bool {
        dispatch > 0 && self.cuts.contains(&dispatch)
    }

    /// Submits that end so.
    pub fn early_submits(&self) -> usize {
        let [a, b, c] = self.cuts;
        usize::from(a > 0) + usize::from(b > 0 && b != a) + usize::from(c > 0 && c != a && c != b)
    }
}

/// Bytes to bring back to the host.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    pub buffer: BufferId,
    pub offset: u64,
    pub bytes: u64,
}

/// A region to another buffer, from byte `at` on. Offsets and lengths are multiples of 4.
#[derive(Clone, Copy, Debug)]
pub struct BufferCopy {
    pub from: Region,
    pub to: BufferId,
    pub at: u64,
}

/// What `session` needs of a GPU. [`WgpuDevice`] implements it for GPUs. For tests there are `Pretend` (one with
/// other capabilities) and `Double` (a GPU on the CPU) of `crates/testing`, and `session`'s fake (one that records calls).
pub trait Gpu {
    fn capabilities(&self) -> &Capabilities;

    /// A zeroed buffer of at least `bytes`, under [`Gpu::push_error_scope`]. Exhaustion shows in [`Gpu::pop_error_scope`],
    /// which names the label.
    fn create_buffer(&self, label: &str, bytes: u64) -> Result<BufferId>;

    fn destroy_buffer(&self, buffer: BufferId);

    /// Bytes of a buffer that exists.
    fn buffer_bytes(&self, buffer: BufferId) -> Option<u64>;

    /// Copies `data` into a buffer before the next submit, under [`Gpu::push_error_scope`]. Offset and length are
    /// multiples of 4.
    fn write(&self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<()>;

    /// Copies between buffers in one submit, after what has been submitted, under [`Gpu::push_error_scope`].
    fn copy(&self, copies: &[BufferCopy]) -> Result<()>;

    /// Lets the host do what waits for its thread: input, painting, other tasks.
    fn yield_now(&self) -> LocalFuture<()>;

    /// Compiles the kernels of plans in parallel, where the platform can. [`Gpu::install`] then finds
    /// them. Errors are not reported here; `install` compiles the kernel again and reports them.
    fn prepare(&self, plans: &[&Plan]) -> LocalFuture<()>;

    /// Compiles a kernel that no call has compiled, off the page's thread where the platform can. The work begins with
    /// the call. What a browser refuses is reported by [`Gpu::install`], which compiles it again. The doubles of a
    /// GPU in the tests compile nothing.
    fn compile(&self, _kernel: &Kernel) -> LocalFuture<Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Compiles a plan's kernels (each distinct text once, while it is in use) and binds its buffers as `resolve` says,
    /// under [`Gpu::push_error_scope`]. Of [`Buffer::Given`] it binds the whole buffer.
    fn install(&self, plan: &Plan, resolve: &dyn Fn(Buffer) -> Result<BufferId>) -> Result<PlanId>;

    /// Binds other buffers to an installed plan, under [`Gpu::push_error_scope`]. What has been submitted keeps those
    /// that it had.
    fn rebind(
        &self,
        id: PlanId,
        plan: &Plan,
        resolve: &dyn Fn(Buffer) -> Result<BufferId>,
    ) -> Result<()>;

    fn uninstall(&self, plan: PlanId);

    /// Runs replays in order in `submits` submits of about equal cost (`cuts::Cuts`), then, if asked, brings a
    /// region back. Where no error scope is open the future also tells whether the device refused any of it.
    fn submit(
        &self,
        replays: &[Replay],
        submits: usize,
        read: Option<Region>,
    ) -> Result<LocalFuture<Result<Vec<u8>>>>;

    /// Brings a region back.
    fn read(&self, region: Region) -> Result<LocalFuture<Result<Vec<u8>>>> {
        self.submit(&[], 1, Some(region))
    }

    /// GPU time of each dispatch of a replay in microseconds; `None` without timestamps.
    fn profile(&self, replay: Replay) -> Result<LocalFuture<Result<Option<Vec<f64>>>>>;

    /// Begins to collect what the device refuses, until [`Gpu::pop_error_scope`], with no await before that.
    /// [`submit_checked`] and [`create_checked`] do both.
    fn push_error_scope(&self);

    /// Ends [`Gpu::push_error_scope`]: the first error since then, if any.
    fn pop_error_scope(&self) -> LocalFuture<Result<()>>;

    /// What has been measured on this device, where products are to be measured at all.
    fn tuned(&self) -> Option<Vec<TunedProduct>>;

    fn set_tuned(&self, tuned: Option<Vec<TunedProduct>>);

    /// Milliseconds since some fixed moment.
    fn now(&self) -> f64;

    fn counters(&self) -> Counters;

    /// Why the device is gone, once it is.
    fn lost(&self) -> Option<String>;

    fn destroy(&self);
}

/// Queues the work of one call. Its future fails where the device refused any of it, or where the work's own future
/// fails.
///
/// # Errors
/// What `queue` itself gives.
pub fn submit_checked<T: 'static>(
    gpu: &dyn Gpu,
    queue: impl FnOnce() -> Result<LocalFuture<Result<T>>>,
) -> Result<LocalFuture<Result<T>>> {
    let (queued, checked) = queue_checked(gpu, queue)?;
    Ok(Box::pin(async move {
        // Before the bytes that are read back: they would fill memory while they wait for it.
        checked.await?;
        queued.await
    }))
}

/// Work of a call that goes on for a while, such as an upload in pieces: whether the device accepted it
/// is awaited later.
#[derive(Default)]
pub struct Pending(Vec<LocalFuture<Result<()>>>);

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Pending").field(&self.0.len()).finish()
    }
}

impl Pending {
    /// Does a piece of the work.
    ///
    /// # Errors
    /// What `work` gives.
    pub fn queue<T>(&mut self, gpu: &dyn Gpu, work: impl FnOnce() -> Result<T>) -> Result<T> {
        gpu.push_error_scope();
        let done = work();
        self.0.push(gpu.pop_error_scope());
        done
    }

    /// Adds a submit whose bytes nobody needs.
    pub fn push(&mut self, submit: LocalFuture<Result<Vec<u8>>>) {
        self.0.push(Box::pin(async move { submit.await.map(drop) }));
    }

    /// Waits until the device has accepted all pieces.
    ///
    /// # Errors
    /// What the device refused first.
    pub async fn accepted(&mut self) -> Result<()> {
        let mut accepted = Ok(());
        for piece in std::mem::take(&mut self.0) {
            accepted = accepted.and(piece.await);
        }
        accepted
    }
}

/// Queues the work of one call, and gives with it whether the device accepts all of it.
///
/// # Errors
/// What `queue` itself gives.
pub fn queue_checked<T>(
    gpu: &dyn Gpu,
    queue: impl FnOnce() -> Result<T>,
) -> Result<(T, LocalFuture<Result<()>>)> {
    gpu.push_error_scope();
    let queued = queue();
    let checked = gpu.pop_error_scope();
    Ok((queued?, checked))
}

/// Makes or writes what needs no readback, and waits until the device has accepted it.
///
/// # Errors
/// What `make` gives, or what the device refused.
pub async fn create_checked<T>(gpu: &dyn Gpu, make: impl FnOnce() -> Result<T>) -> Result<T> {
    let (made, checked) = queue_checked(gpu, make)?;
    checked.await?;
    Ok(made)
}

/// `out-of-memory` for something with its bytes, beside the `held` bytes of a runtime.
pub fn no_memory(what: &str, held: u64) -> Error {
    Error::new(
        ErrorCode::OutOfMemory,
        format!(
            "the GPU has no memory {what}; this runtime holds or has asked for {held} bytes: use a smaller \
             model, fewer tokens per step, or free other models and tensors"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_early_submit_ends_at_each_place_once() {
        for (early, first, places) in [
            (40, 4, &[4, 10, 40][..]),
            (40, 0, &[10, 40]),
            (40, 10, &[10, 40]),
            (40, 40, &[10, 40]),
            (40, 41, &[10, 40]),
            (3, 0, &[3]),
            (0, 0, &[]),
            (0, 4, &[]),
        ] {
            let replay = Replay::new(PlanId(0), 1).sent_early(early, first);
            let cuts: Vec<_> = (0..60).filter(|&dispatch| replay.cuts_before(dispatch)).collect();
            assert_eq!(cuts, places, "the first {first} of {early} early ones");
            assert_eq!(replay.early_submits(), places.len());
        }
    }
}
