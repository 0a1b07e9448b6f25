//! Submits of drawn tokens that are on their way.

use crate::error::{Error, Result};
use crate::gpu::{Gpu, LocalFuture, submit_checked};
use crate::lower::DRAW_SLOTS;
use crate::session::pace::{Pace, SUBMIT_MILLISECONDS, Sent, Work};
use std::cell::Cell;
use std::collections::VecDeque;

/// Submits that are on their way together: while one is read and another is decoded, the browser encodes a third, so
/// that neither it nor the GPU nor the host waits for the others.
pub(in crate::session) const SUBMITS_AHEAD: usize = 4;
/// Most passes of a submit, each of which draws a token of every text. The cache must have rows for all of them.
pub(in crate::session) const MOST_PASSES: usize = 8;
const _: () = assert!(MOST_PASSES <= DRAW_SLOTS);
/// What all of them together may take, but for two of one token: a text that ends waits for what was queued behind its
/// end.
const AHEAD_MILLISECONDS: f64 = 2.0 * SUBMIT_MILLISECONDS;

/// A submit of some passes, each of which draws a token of every text.
pub(in crate::session) struct Submit {
    pub passes: usize,
    sent: Sent,
    drawn: LocalFuture<Result<Vec<u8>>>,
}

impl std::fmt::Debug for Submit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Submit").field("passes", &self.passes).finish_non_exhaustive()
    }
}

impl Submit {
    /// How many of at most `most` passes the GPU does in one submit, where each is `work`.
    pub fn passes(pace: &Pace, work: Work, most: usize) -> usize {
        let passes = (AHEAD_MILLISECONDS / SUBMITS_AHEAD as f64 / pace.predict(work)) as usize;
        passes.clamp(1, most)
    }

    /// What `queue` submits: it gives the passes, what was noted of the work, and where the draws are to come.
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
pub(in crate::session) struct Ahead(VecDeque<Submit>);

impl Ahead {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// How many of at most `most` submits are to be on their way: two where one token takes a submit's whole time.
    pub fn most(&self, most: usize) -> usize {
        let slow = self.0.back().is_some_and(|submit| submit.passes == 1);
        if slow { most.min(2) } else { most }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Turns of all that is on its way.
    pub fn passes(&self) -> usize {
        self.0.iter().map(|submit| submit.passes).sum()
    }

    pub fn push(&mut self, submit: Submit) {
        self.0.push_back(submit);
    }

    /// Awaits the oldest: its passes, and what they have drawn.
    pub async fn read(&mut self, gpu: &dyn Gpu, pace: &Pace) -> Result<(usize, Vec<u8>)> {
        let oldest = self.0.pop_front();
        let Submit { passes, sent, drawn } =
            oldest.ok_or_else(|| Error::internal("nothing is being decoded"))?;
        Ok((passes, pace.arrival(gpu, sent, drawn).await?))
    }

    /// Waits for what is on its way, and drops it: its tokens count for nothing, its first error
    /// does.
    pub async fn settle(&mut self) -> Result<()> {
        let mut settled = Ok(());
        for Submit { drawn, .. } in std::mem::take(&mut self.0) {
            settled = settled.and(drawn.await.map(drop));
        }
        settled
    }
}
