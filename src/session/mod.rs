//! What a user holds: models, trainers, generations. Owns buffers and plans; speaks to the GPU only
//! through [`crate::gpu::Gpu`].

#[cfg(test)]
mod allocations;
mod cache;
mod compile;
#[cfg(test)]
#[path = "../../crates/model/src/counting.rs"]
mod counting;
mod decode;
mod estimate;
#[cfg(test)]
mod fake;
mod memory;
mod model;
mod progress;
mod resources;
pub(crate) mod step;
mod tensors;
#[cfg(test)]
mod tests;
mod throughput;
mod train;
mod weights;

pub use crate::graph::Captured;
pub use crate::lower::InferenceOptions;
pub use crate::optim::{Numbers, Rule};
pub use decode::attribute::AttributedLogit;
pub use decode::batch::BatchGeneration;
pub use decode::generate::{Drawn, GenerateOptions, Generation};
pub use decode::inspect::Inspection;
pub use decode::interventions::{Change, Intervention, Interventions, Place};
pub use decode::score::{ScoreOptions, Scores};
pub use estimate::{Estimate, EstimateOptions, PerCall, TextOptions, estimate};
pub use memory::MemoryBytes;
pub use model::Model;
pub use progress::{NO_PROGRESS, Progress, ProgressCallback};
pub use tensors::ops::Operations;
pub use tensors::tensor::Tensor;
pub use train::resume::Resume;
pub use train::{
    DropoutOptions, GivenGradient, GivenRows, GradientBy, GradientPlace, Metrics, Normalize,
    Precision, RowGradient, SoftTargets, StepObjective, Trainer, TrainerOptions,
};
pub use weights::loader::ModelLoader;
pub use weights::lora::Adapter;
pub use weights::snapshot::{Snapshot, Taken};
