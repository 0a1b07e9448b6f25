//! A model: its weights on a GPU, and its key-value caches.

use super::cache::key_value_cache::KeyValueCache;
use super::decode::batched_plans::LastBatchedPlans;
use super::decode::capture::CapturePlan;
use super::decode::interventions::KnownInterventions;
use super::decode::probe_plan::ProbePlans;
use super::progress::Progress;
use super::throughput::Throughput;
use super::weights::{Weights, tensor_at};
use crate::config::ModelConfig;
use crate::error::Result;
use crate::gpu::Gpu;
use crate::kernels::WeightFormat;
use crate::params::Params;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

/// A model on a device. Cheap to share; freed by [`Model::free`] or with its last reference.
#[derive(Debug)]
pub struct Model {
    pub(super) weights: Rc<Weights>,
    /// One for each of the options with which it has been used.
    pub(super) caches: RefCell<Vec<Rc<KeyValueCache>>>,
    /// Bytes held by trainers of this model.
    pub(super) trainer_bytes: Cell<u64>,
    /// Counts uses of the caches.
    epoch: Cell<u64>,
    /// What decoded batched rows last.
    pub(super) batched_plans: LastBatchedPlans,
    /// What has looked into the model.
    pub(super) probe_plans: ProbePlans,
    pub(super) capture_plan: RefCell<Option<CapturePlan>>,
    /// What calls that are not over change on the way.
    pub(super) interventions: RefCell<KnownInterventions>,
    /// How fast the GPU reads chunks of a prompt, and decodes tokens.
    pub(super) chunk_throughput: Throughput,
    pub(super) token_throughput: Throughput,
}

impl Model {
    pub(super) fn new(weights: Weights) -> Self {
        let caps = weights.gpu.0.capabilities();
        Self {
            chunk_throughput: Throughput::new(caps),
            token_throughput: Throughput::new(caps),
            weights: Rc::new(weights),
            caches: RefCell::default(),
            trainer_bytes: Cell::new(0),
            batched_plans: LastBatchedPlans::default(),
            probe_plans: ProbePlans::default(),
            capture_plan: RefCell::default(),
            interventions: RefCell::default(),
            epoch: Cell::new(0),
        }
    }

    /// A model whose weights are all zero.
    pub(super) fn allocate(
        gpu: &Rc<dyn Gpu>,
        config: ModelConfig,
        format: WeightFormat,
    ) -> Result<Self> {
        Weights::allocate(gpu, config, format).map(Self::new)
    }

    /// As if the GPU had been seen to do `units` units of work per millisecond.
    #[cfg(feature = "testing")]
    pub fn pretend_throughput(&self, units: f64) {
        self.chunk_throughput.pretend(units);
    }

    /// A model with weights as transformers initialises them: matrices and embeddings normal with
    /// deviation `initializer_range`, norms one. The same seed gives the same bits everywhere.
    ///
    /// # Errors
    /// `limit-exceeded`, `out-of-memory`, `device-lost`, `aborted`.
    pub async fn create(
        gpu: &Rc<dyn Gpu>,
        config: ModelConfig,
        seed: u64,
        progress: Progress<'_>,
    ) -> Result<Rc<Self>> {
        let weights = Weights::create(gpu, config, seed, progress).await?;
        Ok(Rc::new(Self::new(weights)))
    }

    pub fn config(&self) -> &ModelConfig {
        &self.weights.config
    }

    pub fn layout(&self) -> &Params {
        &self.weights.layout
    }

    /// How it holds its matrices.
    pub fn weights(&self) -> WeightFormat {
        self.layout().weights
    }

    /// Refuses a save of a packed model, whose numbers are not the checkpoint's.
    ///
    /// # Errors
    /// `invalid-options`.
    pub fn expect_saved(&self) -> Result<()> {
        self.weights.expect_own_numbers("save")
    }

    pub fn parameter_count(&self) -> u64 {
        self.layout().parameter_count()
    }

    pub fn gpu(&self) -> &Rc<dyn Gpu> {
        &self.weights.gpu.0
    }

    /// Bytes on the GPU of the weights, the inference buffers and the trainers.
    pub fn gpu_bytes(&self) -> u64 {
        let caches: u64 = self.caches.borrow().iter().map(|cache| cache.bytes()).sum();
        let others = self.trainer_bytes.get() + self.weights.bound_bytes.get();
        self.weights.bytes() + caches + others
    }

    /// Gives up the GPU memory. Every later use fails with code `freed`.
    pub fn free(&self) {
        self.caches.take();
        self.batched_plans.free();
        self.probe_plans.free();
        self.capture_plan.take();
        self.weights.free();
    }

    /// Tensor names and shapes in the order of their data in a saved file.
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        self.weights.tensors()
    }

    /// The first bytes of `model.safetensors`: length and header.
    pub fn save_header(&self) -> Vec<u8> {
        self.weights.save_header()
    }

    /// A weight tensor's bytes, f32 little endian.
    pub async fn read_tensor(&self, index: usize) -> Result<Vec<u8>> {
        let elements: usize = tensor_at(self.layout(), index)?.shape.iter().product();
        self.read_piece(index, 0..elements as u64 * 4).await
    }

    /// Some of a weight tensor's bytes, whole elements.
    pub async fn read_piece(&self, index: usize, bytes: Range<u64>) -> Result<Vec<u8>> {
        self.weights.read_piece(index, bytes).await
    }

    /// The numbers of a parameter, by its name in the checkpoint.
    pub async fn read_named(&self, name: &str) -> Result<Vec<f32>> {
        self.weights.read_named(name).await
    }

    /// Overwrites the numbers of a parameter, by its name in the checkpoint.
    pub async fn write_named(&self, name: &str, values: &[f32]) -> Result<()> {
        self.weights.write_named(name, values).await
    }

    /// How often the weights have changed.
    #[cfg(feature = "testing")]
    pub fn version(&self) -> u64 {
        self.weights.version()
    }

    /// Notes that the weights have changed: what the caches hold is void.
    pub fn changed(&self) {
        self.weights.changed();
    }

    /// Counts another use of a key-value cache and returns its number, which is never 0.
    pub(super) fn next_epoch(&self) -> u64 {
        self.epoch.set(self.epoch.get() + 1);
        self.epoch.get()
    }
}
