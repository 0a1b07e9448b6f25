//! What reads texts into the cache and draws tokens behind them.

mod ahead;
pub(super) mod batch;
mod batched_pass;
pub(super) mod batched_plans;
#[cfg(feature = "testing")]
mod decode_profile;
pub(super) mod generate;
mod inference;
pub(super) mod look;
mod lookup;
pub(super) mod probe_plan;
mod sampler;
