//! A part of [tinyloom](https://docs.rs/tinyloom), without a promise of stability of its own.
//!
//! From graphs to plans: kernels and their selection, layouts, lowering, optimizers. A plan is plain data; this crate
//! knows no GPU.

#![warn(missing_debug_implementations)]

pub mod caps;
pub mod kernels;
pub mod layout;
pub mod lower;
pub mod ops;
pub mod optim;
pub mod plan;
pub mod products;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(feature = "testing")]
pub mod twins;

// What this crate uses of the one below it.
use tinyloom_model::{arch, config, data, decimal, error, format, graph, params, random};
