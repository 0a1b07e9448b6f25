//! Text to packed batches.

mod batch;
mod dataset;
mod packed;
mod source;

pub use batch::{
    Batch, IGNORE_INDEX, document_ends, sorted_by_token, write_document_ends, write_sorted_by_token,
};
pub use dataset::{Dataset, DatasetOptions, VALIDATION_TARGETS};
pub use source::{MaskedTokens, TokenSource};
