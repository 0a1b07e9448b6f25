//! Waits for readbacks in a browser, and makes it poll the GPU for them.
//!
//! Chromium's GPU process polls the GPU when commands arrive, and otherwise only every other millisecond: on an H200
//! 160 short dispatches took 3.1 ms from submit to mapped bytes, and 1.0 ms with commands arriving meanwhile
//! (`docs/decisions/017-polling-in-chromium.md`). An empty error scope is a command that gives the GPU nothing to do,
//! and its answer says when to send the next. They are sent only around the time that the last readback took: a step of
//! a second costs no more of them than one of twenty milliseconds. The first of them are the error scopes of the call
//! itself, which are popped after its submit.
//!
//! Firefox polls at each submit, be it empty, and otherwise every 100 milliseconds. There empty submits
//! go with the error scopes, and some alone long before and after: how long the last readback took may
//! be no more than how long nobody polled.

use crate::host::{is_firefox, pause};
use futures_channel::oneshot::{Canceled, Receiver};
use futures_util::future::Shared;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use wasm_bindgen_futures::JsFuture;

/// How long before and after the expected time, as a share of it and in milliseconds.
const SHARE: f64 = 0.15;
const LEAST: f64 = 1.0;
const MOST: f64 = 4.0;
/// Most commands for a readback: a browser may answer them at once.
const MOST_POLLS: usize = 64;
/// In Firefox, polls before that, and the longest pause between them in milliseconds.
const EARLY_POLLS: f64 = 4.0;
const EARLY_PAUSE: f64 = 25.0;
/// In Firefox, pauses between polls after that, as a share of the time waited, and most polls: some
/// second, after which its own are as frequent.
const LATE_SHARE: f64 = 0.1;
const LATE_POLLS: usize = 64;

type Arrived<T> = Result<T, Canceled>;

/// Ends when the scopes of a call are answered.
pub(super) type Answer = Shared<JsFuture>;

/// Awaits readbacks.
#[derive(Debug)]
pub(super) struct ReadbackPoller {
    device: wgpu::Device,
    queue: wgpu::Queue,
    clock: fn() -> f64,
    /// Whether it takes a submit to make the browser poll. Elsewhere that costs more than it brings:
    /// in Chromium a step of 1.6 ms became one of 1.9.
    by_submit: bool,
    /// Milliseconds that the last readback took.
    last: Cell<f64>,
    answer: RefCell<Option<Answer>>,
}

impl ReadbackPoller {
    pub fn new(device: wgpu::Device, queue: wgpu::Queue, clock: fn() -> f64) -> Self {
        let (last, answer) = Default::default();
        Self { device, queue, clock, by_submit: is_firefox(), last, answer }
    }

    /// Takes the answer to commands that have just been sent for one to its own.
    pub fn answer(&self, answer: Answer) {
        self.answer.replace(Some(answer));
    }

    /// What the receiver gets.
    pub async fn arrival<T>(&self, mut receiver: Receiver<T>) -> Arrived<T> {
        let began = (self.clock)();
        let arrived = match self.polled(&mut receiver, began).await {
            Some(arrived) => arrived,
            None => receiver.await,
        };
        self.last.set((self.clock)() - began);
        arrived
    }

    /// What arrives until the browser is left to itself.
    async fn polled<T>(&self, receiver: &mut Receiver<T>, began: f64) -> Option<Arrived<T>> {
        let expected = self.last.get();
        let margin = (expected * SHARE).clamp(LEAST, MOST);
        let quiet = (expected - margin).floor();
        let answer = self.answer.take().filter(|_| quiet < 1.0 && !self.by_submit);
        let arrived = if self.by_submit {
            self.early(receiver, began, quiet).await
        } else if quiet >= 1.0 {
            before(receiver, pause(quiet)).await
        } else {
            None
        };
        if arrived.is_some() {
            return arrived;
        }
        if let Some(answer) = answer {
            let arrived = before(receiver, answer).await;
            if arrived.is_some() {
                return arrived;
            }
        }
        for _ in 0..MOST_POLLS {
            if (self.clock)() - began > expected + 2.0 * margin {
                break;
            }
            if self.by_submit {
                self.queue.submit([]);
            }
            let poll = self.device.push_error_scope(wgpu::ErrorFilter::Validation).pop();
            let arrived = before(receiver, poll).await;
            if arrived.is_some() {
                return arrived;
            }
        }
        if self.by_submit { self.late(receiver, began).await } else { None }
    }

    /// What arrives in the first `quiet` milliseconds, with a poll now and then.
    async fn early<T>(
        &self,
        receiver: &mut Receiver<T>,
        began: f64,
        quiet: f64,
    ) -> Option<Arrived<T>> {
        let part = (quiet / EARLY_POLLS).clamp(LEAST, EARLY_PAUSE);
        for _ in 0..(quiet / part).ceil() as usize {
            let rest = quiet - ((self.clock)() - began);
            if rest < 1.0 {
                break;
            }
            let arrived = before(receiver, pause(part.min(rest))).await;
            if arrived.is_some() {
                return arrived;
            }
            self.queue.submit([]);
        }
        None
    }

    /// What arrives later than expected, with polls that grow rarer.
    async fn late<T>(&self, receiver: &mut Receiver<T>, began: f64) -> Option<Arrived<T>> {
        for _ in 0..LATE_POLLS {
            let rest = (((self.clock)() - began) * LATE_SHARE).max(LEAST);
            let arrived = before(receiver, pause(rest)).await;
            if arrived.is_some() {
                return arrived;
            }
            self.queue.submit([]);
        }
        None
    }
}

/// What the receiver gets before something else ends.
async fn before<T>(receiver: &mut Receiver<T>, end: impl Future) -> Option<Arrived<T>> {
    let mut end = pin!(end);
    poll_fn(|context| match Pin::new(&mut *receiver).poll(context) {
        Poll::Ready(arrived) => Poll::Ready(Some(arrived)),
        Poll::Pending => end.as_mut().poll(context).map(|_| None),
    })
    .await
}
