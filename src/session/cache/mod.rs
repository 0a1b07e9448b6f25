//! The key-value cache: its buffers, the plans bound to them, what they cost.

pub(super) mod allocation;
pub(super) mod bound_plans;
pub(super) mod caches;
pub(super) mod chunk;
pub(super) mod costs;
pub(super) mod key_value_cache;
pub(super) mod named_plans;
