//! Running totals, so that tests can hold replays to their promises.

use serde::Serialize;

/// What a device has made and done so far, and the bytes of its buffers now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counters {
    pub buffers: u64,
    pub bind_groups: u64,
    pub pipelines: u64,
    pub submits: u64,
    pub dispatches: u64,
    /// Schedules of a plan's dispatches built for a number of rows.
    pub schedules: u64,
    pub gpu_bytes: u64,
}
