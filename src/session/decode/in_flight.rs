//! Passes that draw tokens, in flight.

use crate::error::{Error, Result};
use crate::gpu::{Gpu, LocalFuture, submit_checked};
use crate::lower::DRAW_SLOTS;
use crate::session::throughput::{SUBMIT_MILLISECONDS, Sent, Throughput, Work};
use std::cell::Cell;
use std::collections::VecDeque;

/// Groups of passes in flight together. While one is read and another is decoded, the browser encodes a third, so that
/// neither it nor the GPU nor the host waits for the others.
pub(in crate::session) const MOST_IN_FLIGHT: usize = 4;
/// Most passes that are queued together, each of which draws a token of every text. The cache must have rows for all.
pub(in crate::session) const MOST_PASSES: usize = 8;
const _: () = assert!(MOST_PASSES <= DRAW_SLOTS);
/// Milliseconds that all passes in flight may take together. Two single passes may take longer. It is bounded because a
/// text that ends waits for what was queued after its end.
const IN_FLIGHT_MILLISECONDS: f64 = 2.0 * SUBMIT_MILLISECONDS;

/// Passes that were queued together and are read back together. Each draws a token of every text. The GPU may get them
/// in several submits.
pub(in crate::session) struct QueuedPasses {
    pub passes: usize,
    sent: Sent,
    drawn: LocalFuture<Result<Vec<u8>>>,
}

impl std::fmt::Debug for QueuedPasses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueuedPasses").field("passes", &self.passes).finish_non_exhaustive()
    }
}

impl QueuedPasses {
    /// How many of at most `most` passes are queued together, where each is `work`.
    pub fn passes(throughput: &Throughput, work: Work, most: usize) -> usize {
        let passes =
            (IN_FLIGHT_MILLISECONDS / MOST_IN_FLIGHT as f64 / throughput.predict(work)) as usize;
        passes.clamp(1, most)
    }

    /// What `queue` submits. It gives the passes, what was noted of the work, and where the draws are to come.
    ///
    /// # Errors
    /// What `queue` itself gives.
    pub fn queued(
        gpu: &dyn Gpu,
        queue: impl FnOnce() -> Result<(usize, Sent, LocalFuture<Result<Vec<u8>>>)>,
    ) -> Result<Self> {
        let noted = Cell::new(None);
        let drawn = submit_checked(gpu, || {
            let (passes, sent, drawn) = queue()?;
            noted.set(Some((passes, sent)));
            Ok(drawn)
        })?;
        let noted = noted.take().ok_or_else(|| Error::internal("nothing was queued"))?;
        let (passes, sent) = noted;
        Ok(Self { passes, sent, drawn })
    }
}

/// Submits that were not read yet, the oldest first.
#[derive(Debug, Default)]
pub(in crate::session) struct DrawsInFlight(VecDeque<QueuedPasses>);

impl DrawsInFlight {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// How many of at most `most` groups of passes are to be in flight: two where one token takes a submit's whole
    /// time.
    pub fn most(&self, most: usize) -> usize {
        let slow = self.0.back().is_some_and(|submit| submit.passes == 1);
        if slow { most.min(2) } else { most }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Passes of all that is in flight.
    pub fn passes(&self) -> usize {
        self.0.iter().map(|queued| queued.passes).sum()
    }

    pub fn push(&mut self, queued: QueuedPasses) {
        self.0.push_back(queued);
    }

    /// Awaits the oldest: its passes, and what they have drawn.
    pub async fn read(
        &mut self,
        gpu: &dyn Gpu,
        throughput: &Throughput,
    ) -> Result<(usize, Vec<u8>)> {
        let oldest = self.0.pop_front();
        let QueuedPasses { passes, sent, drawn } =
            oldest.ok_or_else(|| Error::internal("nothing is being decoded"))?;
        Ok((passes, throughput.arrival(gpu, sent, drawn).await?))
    }

    /// Waits for what is in flight, and drops it: its tokens count for nothing, its first error does.
    pub async fn drain(&mut self) -> Result<()> {
        let mut drained = Ok(());
        for QueuedPasses { drawn, .. } in std::mem::take(&mut self.0) {
            drained = drained.and(drawn.await.map(drop));
        }
        drained
    }
}
