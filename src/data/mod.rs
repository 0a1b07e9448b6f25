//! Text to packed batches.

mod batch;
mod dataset;

pub use batch::{Batch, IGNORE_INDEX, document_ends, sorted_by_token};
pub use dataset::{Dataset, DatasetOptions, VALIDATION_TARGETS};
