//! A part of [tinyloom](https://docs.rs/tinyloom), without a promise of stability of its own.
//!
//! Models as data: configs and families, graphs and their derived passes, layouts of parameters, batches.

#![warn(missing_debug_implementations)]

pub mod arch;
pub mod config;
#[cfg(test)]
mod counting;
pub mod data;
pub mod decimal;
pub mod error;
pub mod format;
pub mod graph;
pub mod params;
pub mod random;
