//! The moving average of weights: begun, and exchanged with the weights for as long as it is evaluated or saved.

use super::Trainer;
use crate::error::{Error, Result};
use crate::gpu::{Replay, queue_checked};
use crate::session::step::Step;

/// What `12_average.wgsl` does by a step's position.
const BEGIN: u32 = 1;
const EXCHANGE: u32 = 2;

impl Trainer {
    /// Makes the averages the weights as they are, where there are averages.
    pub(super) async fn begin_averages(&self) -> Result<()> {
        if self.installed.averages.is_some() { self.average(BEGIN).await } else { Ok(()) }
    }

    /// Puts the averages where the weights are and the weights where the averages are; again: back, to the bit.
    /// No step may come between.
    ///
    /// # Errors
    /// `invalid-options` where there are no averages; `freed`, `device-lost`.
    pub async fn exchange_averages(&self) -> Result<()> {
        self.average(EXCHANGE).await?;
        self.exchanged.set(!self.exchanged.get());
        Ok(())
    }

    async fn average(&self, position: u32) -> Result<()> {
        let plan = self.installed.averages.ok_or_else(|| {
            Error::options(
                "this trainer keeps no average of weights: create it with ema, such as ema: 0.999",
            )
        })?;
        let gpu = self.model.gpu();
        let ((), accepted) = queue_checked(&**gpu, || {
            self.write_step(&Step { position, ..Step::of(1) })?;
            gpu.submit(&[Replay::new(plan, 1)], 1, None).map(drop)
        })?;
        self.model.changed();
        accepted.await
    }
}
