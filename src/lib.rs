#![doc = include_str!("../README.md")]
#![warn(missing_debug_implementations)]

pub mod arch;
pub mod caps;
pub mod checkpoint;
pub mod config;
pub mod data;
pub mod error;
pub mod format;
pub mod gpu;
pub mod graph;
pub mod kernels;
pub mod lower;
pub mod optim;
pub mod params;
pub mod plan;
pub mod random;
#[cfg(any(test, feature = "testing"))]
pub mod reference;
pub mod schedule;
pub mod session;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(target_arch = "wasm32")]
pub mod web;
