//! Waits for readbacks in a browser, and makes it look whether they are there.
//!
//! Chromium's GPU process looks whether the GPU is done when commands arrive, and otherwise only
//! every other millisecond: on an H200 160 short dispatches took 3.1 ms from submit to mapped bytes,
//! and 1.0 ms with commands arriving meanwhile (`bench/NOTES.md`). An empty error scope is a command
//! that gives the GPU nothing to do, and its answer says when to send the next. Firefox looks at each
//! submit, be it empty, and otherwise every 100 milliseconds. Most are sent around the time that the
//! last readback took, few before and after it: a step of a second costs hardly more of them than one
//! of twenty milliseconds.

use super::browser::{is_firefox, pause};
use futures_channel::oneshot::{Canceled, Receiver};
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

/// How long before and after the expected time most are sent, as a share of it and in milliseconds.
const SHARE: f64 = 0.15;
const LEAST: f64 = 1.0;
const MOST: f64 = 4.0;
/// Most commands around the expected time: a browser may answer them at once.
const MOST_NUDGES: usize = 64;
/// Looks long before the expected time, so that one that has become too long is found out.
const EARLY_LOOKS: f64 = 4.0;
/// Milliseconds below which these are not worth their timers.
const EARLY_LEAST: f64 = 8.0;
/// Pauses between looks after the expected time, as a share of the time waited.
const LATE_SHARE: f64 = 0.1;

/// Awaits readbacks.
#[derive(Debug)]
pub(super) struct Pace {
    device: wgpu::Device,
    queue: wgpu::Queue,
    clock: fn() -> f64,
    /// Whether it takes a submit to make the browser look. Elsewhere that costs more than it brings:
    /// in Chromium a step of 1.6 ms became one of 1.9.
    by_submit: bool,
    /// Milliseconds that the last readback took.
    last: Cell<f64>,
}

impl Pace {
    pub fn new(device: wgpu::Device, queue: wgpu::Queue, clock: fn() -> f64) -> Self {
        Self { device, queue, clock, by_submit: is_firefox(), last: Cell::default() }
    }

    /// What the receiver gets.
    pub async fn arrival<T>(&self, receiver: Receiver<T>) -> Result<T, Canceled> {
        let began = (self.clock)();
        let arrived = self.nudged(receiver, began).await;
        self.last.set((self.clock)() - began);
        arrived
    }

    async fn nudged<T>(&self, mut receiver: Receiver<T>, began: f64) -> Result<T, Canceled> {
        let waited = || (self.clock)() - began;
        let expected = self.last.get();
        let margin = (expected * SHARE).clamp(LEAST, MOST);
        let quiet = (expected - margin).floor();
        let part = if quiet < EARLY_LEAST { quiet } else { quiet / EARLY_LOOKS };
        while quiet - waited() >= 1.0 {
            if let Some(arrived) = before(&mut receiver, pause(part.min(quiet - waited()))).await {
                return arrived;
            }
            drop(self.look());
        }
        for _ in 0..MOST_NUDGES {
            if waited() > expected + 2.0 * margin {
                break;
            }
            if let Some(arrived) = before(&mut receiver, self.look()).await {
                return arrived;
            }
        }
        loop {
            let rest = (waited() * LATE_SHARE).max(1.0);
            if let Some(arrived) = before(&mut receiver, pause(rest)).await {
                return arrived;
            }
            drop(self.look());
        }
    }

    /// Makes the browser look, and ends when it has taken notice.
    fn look(&self) -> impl Future {
        if self.by_submit {
            self.queue.submit([]);
        }
        self.device.push_error_scope(wgpu::ErrorFilter::Validation).pop()
    }
}

/// What the receiver gets before something else ends.
async fn before<T>(receiver: &mut Receiver<T>, end: impl Future) -> Option<Result<T, Canceled>> {
    let mut end = pin!(end);
    poll_fn(|context| match Pin::new(&mut *receiver).poll(context) {
        Poll::Ready(arrived) => Poll::Ready(Some(arrived)),
        Poll::Pending => end.as_mut().poll(context).map(|_| None),
    })
    .await
}
