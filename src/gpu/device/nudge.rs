//! Waits for readbacks in a browser, and makes it look whether they are there.
//!
//! Chromium's GPU process looks whether the GPU is done when commands arrive, and otherwise only
//! every other millisecond: on an H200 160 short dispatches took 3.1 ms from submit to mapped bytes,
//! and 1.0 ms with commands arriving meanwhile (`bench/NOTES.md`). An empty error scope is a command
//! that gives the GPU nothing to do, and its answer says when to send the next. They are sent only
//! around the time that the last readback took: a step of a second costs no more of them than one of
//! twenty milliseconds.

use super::browser::pause;
use futures_channel::oneshot::{Canceled, Receiver};
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

/// How long before and after the expected time, as a share of it and in milliseconds.
const SHARE: f64 = 0.15;
const LEAST: f64 = 1.0;
const MOST: f64 = 4.0;
/// Most commands for a readback: a browser may answer them at once.
const MOST_NUDGES: usize = 64;

/// Milliseconds that the last readback took.
#[derive(Debug, Default)]
pub(super) struct Pace(Cell<f64>);

impl Pace {
    /// What the receiver gets.
    pub async fn arrival<T>(
        &self,
        mut receiver: Receiver<T>,
        device: &wgpu::Device,
        now: fn() -> f64,
    ) -> Result<T, Canceled> {
        let began = now();
        let arrived = self.nudged(&mut receiver, device, now, began).await;
        let arrived = match arrived {
            Some(arrived) => arrived,
            None => receiver.await,
        };
        self.0.set(now() - began);
        arrived
    }

    /// What arrives until shortly after the expected time.
    async fn nudged<T>(
        &self,
        receiver: &mut Receiver<T>,
        device: &wgpu::Device,
        now: fn() -> f64,
        began: f64,
    ) -> Option<Result<T, Canceled>> {
        let expected = self.0.get();
        let margin = (expected * SHARE).clamp(LEAST, MOST);
        let quiet = (expected - margin).floor();
        if quiet >= 1.0 {
            let arrived = before(receiver, pause(quiet)).await;
            if arrived.is_some() {
                return arrived;
            }
        }
        for _ in 0..MOST_NUDGES {
            if now() - began > expected + 2.0 * margin {
                break;
            }
            let nudge = device.push_error_scope(wgpu::ErrorFilter::Validation).pop();
            let arrived = before(receiver, nudge).await;
            if arrived.is_some() {
                return arrived;
            }
        }
        None
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
