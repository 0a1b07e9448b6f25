//! Whether the device is lost, and which of a call's failures its loss explains.

use crate::LocalFuture;
use crate::error::{Error, ErrorCode, Result};
use std::sync::{Arc, Mutex};

/// Milliseconds that a failure waits for news of a lost device. Firefox may report the loss 100 ms after
/// the failures that it causes.
#[cfg(target_arch = "wasm32")]
const PATIENCE: f64 = 2000.0;

#[derive(Default)]
struct State {
    reason: Option<String>,
    waiting: Vec<futures_channel::oneshot::Sender<String>>,
}

/// The end of a device, as its callback reports it.
#[derive(Clone)]
pub(super) struct DeviceLoss {
    device: wgpu::Device,
    state: Arc<Mutex<State>>,
}

impl DeviceLoss {
    /// Begins to listen.
    pub fn new(device: &wgpu::Device) -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        device.set_device_lost_callback(move |reason, message| {
            let message = format!("{reason:?}: {message}");
            if let Ok(mut state) = shared.lock() {
                for waiting in state.waiting.drain(..) {
                    let _ = waiting.send(message.clone());
                }
                state.reason = Some(message);
            }
        });
        Self { device: device.clone(), state }
    }

    pub fn reason(&self) -> Option<String> {
        self.state.lock().ok().and_then(|state| state.reason.clone())
    }

    /// Resolves with the reason when the device is lost.
    pub fn when(&self) -> LocalFuture<String> {
        let (sender, receiver) = futures_channel::oneshot::channel();
        if let Ok(mut state) = self.state.lock() {
            match &state.reason {
                Some(reason) => {
                    let _ = sender.send(reason.clone());
                }
                None => state.waiting.push(sender),
            }
        }
        Box::pin(async move { receiver.await.unwrap_or_else(|_| "the device was dropped".into()) })
    }

    /// Fails when the device is lost.
    pub fn alive(&self) -> Result<()> {
        match self.reason() {
            Some(reason) => {
                Err(Error::new(ErrorCode::DeviceLost, format!("the GPU device is lost ({reason})")))
            }
            None => Ok(()),
        }
    }

    /// The loss of the device, where that is why a call failed; else the call's own error. A failure
    /// may arrive before the loss that caused it.
    pub async fn explain(&self, error: Error) -> Error {
        if self.alive().is_ok() {
            self.wait_for_news().await;
        }
        self.alive().err().unwrap_or(error)
    }

    #[cfg(not(target_arch = "wasm32"))]
    async fn wait_for_news(&self) {
        let _ = self.device.poll(wgpu::PollType::Poll);
    }

    /// Waits until the device is known to be lost or to work.
    #[cfg(target_arch = "wasm32")]
    async fn wait_for_news(&self) {
        use crate::host::pause;
        use futures_util::future::select;
        use std::pin::pin;

        let answers = pin!(self.answers());
        select(select(self.when(), answers), pin!(pause(PATIENCE))).await;
    }

    /// Resolves when the device has done something, and never if it does not.
    #[cfg(target_arch = "wasm32")]
    async fn answers(&self) {
        use super::scopes::{Filter, Scope};

        let (sender, receiver) = futures_channel::oneshot::channel();
        // What is wrong here is no one's error: the call has one already.
        let scopes = Filter::ALL.map(|filter| Scope::push(&self.device, filter));
        let probe = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("probe"),
            size: 16,
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        probe.map_async(wgpu::MapMode::Read, .., move |mapped| {
            if mapped.is_ok() {
                let _ = sender.send(());
            }
        });
        for scope in scopes.into_iter().rev() {
            drop(scope.pop());
        }
        let worked = receiver.await.is_ok();
        probe.destroy();
        if !worked {
            std::future::pending::<()>().await;
        }
    }
}
