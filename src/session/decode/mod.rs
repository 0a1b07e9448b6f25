//! What reads texts into the cache and draws tokens behind them.

mod ahead;
pub(super) mod batch;
#[cfg(feature = "testing")]
mod decode_profile;
pub(super) mod generate;
mod inference;
pub(super) mod look;
mod lookup;
pub(super) mod prober;
mod sampler;
mod several;
pub(super) mod several_plans;
