//! What a user holds: models, trainers, generations. Owns buffers and plans; speaks to the GPU only
//! through [`crate::gpu::Gpu`].

mod adapter;
mod ahead;
#[cfg(test)]
mod allocations;
mod annex;
mod batch;
mod caches;
mod chunk;
mod costs;
#[cfg(test)]
pub(crate) mod counting;
#[cfg(feature = "testing")]
mod decode_profile;
mod estimate;
#[cfg(test)]
mod fake;
mod generate;
mod inference;
mod key_value_cache;
mod loader;
mod look;
mod lookup;
mod memory;
mod model;
mod ops;
mod pace;
mod place;
mod prober;
mod resources;
mod resume;
mod sampler;
mod several;
mod several_plans;
mod snapshot;
pub(crate) mod step;
mod tensor;
#[cfg(test)]
mod tests;
mod trainer;
mod tune;
mod watch;
mod weights;

pub use crate::lower::InferenceOptions;
pub use crate::optim::OptimizerKind;
pub use adapter::Adapter;
pub use batch::Batch;
pub use estimate::{Estimate, EstimateOptions, PerCall, TextOptions, estimate};
pub use generate::{Drawn, GenerateOptions, Generation};
pub use loader::ModelLoader;
pub use look::Look;
pub use memory::MemoryBytes;
pub use model::Model;
pub use ops::Operations;
pub use resume::Resume;
pub use snapshot::{Snapshot, Taken};
pub use tensor::Tensor;
pub use trainer::{DropoutOptions, Metrics, Precision, Trainer, TrainerOptions};
pub use watch::{Ask, UNWATCHED, Watch};
