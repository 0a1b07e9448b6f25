//! What reads texts into the cache and draws the tokens that follow.

pub(super) mod attribute;
pub(super) mod batch;
mod batched_pass;
pub(super) mod batched_plans;
pub(super) mod capture;
#[cfg(feature = "testing")]
mod decode_profile;
pub(super) mod generate;
mod in_flight;
mod inference;
pub(super) mod inspect;
pub(super) mod interventions;
mod lookup;
mod prepare;
pub(super) mod probe_plan;
mod sampler;
pub(in crate::session) mod score;
