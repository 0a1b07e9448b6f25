//! A model: its configuration, its layout, its weights on the GPU.

use super::key_value_cache::KeyValueCache;
use super::memory::{self, MemoryBytes, Purpose};
use super::pace::{Pace, Pauses};
use super::place::Place;
use super::resources::Resources;
use super::step::Initialize;
use super::watch::Watch;
use crate::arch::{Architecture, Init};
use crate::checkpoint::write_header;
use crate::config::ModelConfig;
use crate::error::{Error, ErrorCode, Result};
use crate::gpu::{Gpu, Pending, Replay, made};
use crate::lower::initialize_plan;
use crate::params::{Params, Tensor};
use crate::plan::Buffer;
use crate::random::fill_weights;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

/// Elements generated between pauses: a few milliseconds on a slow host.
const FILLED_ELEMENTS: usize = 1 << 16;

/// Operations of an initialisation that even a slow GPU does within a tenth of a second.
const SUBMIT_FLOPS: f64 = 2e10;

/// A model on a device. Cheap to share; freed by [`Model::free`] or with its last reference.
#[derive(Debug)]
pub struct Model {
    pub(super) gpu: GpuRef,
    pub(super) config: ModelConfig,
    pub(super) layout: Params,
    pub(super) weights: RefCell<Option<Rc<Resources>>>,
    /// One for each of the options with which it has been used.
    pub(super) caches: RefCell<Vec<Rc<KeyValueCache>>>,
    /// Bytes held by trainers of this model.
    pub(super) trainer_bytes: Cell<u64>,
    /// Counts uses of the caches.
    epoch: Cell<u64>,
    /// Counts changes of the weights.
    pub(super) version: Cell<u64>,
    /// How fast the GPU reads chunks of a prompt, and decodes tokens.
    pub(super) chunk_pace: Pace,
    pub(super) token_pace: Pace,
}

/// A GPU that can be printed.
#[derive(Clone)]
pub(super) struct GpuRef(pub Rc<dyn Gpu>);

impl std::fmt::Debug for GpuRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Gpu").field(self.0.capabilities()).finish()
    }
}

impl Model {
    pub(super) fn allocate(gpu: &Rc<dyn Gpu>, config: ModelConfig) -> Result<Self> {
        let binding = gpu.capabilities().limits.shard_bytes();
        let layout = Params::new(Architecture::of(&config), binding)?;
        memory::judge(&**gpu, Purpose::Model, &MemoryBytes::of_weights(&layout))?;
        let mut weights = Resources::new(gpu);
        for (index, shard) in layout.shards.iter().enumerate() {
            weights.add(Buffer::Weights(index), shard.len as u64 * 4)?;
        }
        Ok(Self {
            gpu: GpuRef(Rc::clone(gpu)),
            config,
            layout,
            weights: RefCell::new(Some(Rc::new(weights))),
            caches: RefCell::default(),
            trainer_bytes: Cell::new(0),
            epoch: Cell::new(0),
            version: Cell::new(0),
            chunk_pace: Pace::new(gpu.capabilities()),
            token_pace: Pace::new(gpu.capabilities()),
        })
    }

    /// As if the GPU had been seen to do so many units of work per millisecond.
    #[cfg(test)]
    pub fn pretend_pace(&self, units: f64) {
        self.chunk_pace.pretend(units);
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
        watch: Watch<'_>,
    ) -> Result<Rc<Self>> {
        watch.at(0, 1, "initialise weights")?;
        let (mut asked, caps) = (MemoryBytes::default(), gpu.capabilities());
        let allocate = || {
            let model = Self::allocate(gpu, config)?;
            asked = MemoryBytes::of_weights(&model.layout);
            if !caps.software {
                model.initialize_matrices(seed)?;
            }
            Ok(model)
        };
        let allocated = made(&**gpu, allocate).await;
        let model = allocated.map_err(|error| memory::explained(error, Purpose::Model, &asked))?;
        model.initialize(seed, watch).await?;
        watch.at(1, 1, "initialise weights")?;
        Ok(Rc::new(model))
    }

    /// Fills each tensor as its [`Init`] says, with pauses for what else the host has to do. Normal
    /// ones are drawn by the GPU or, where that is a CPU, by this one, to the same bits.
    async fn initialize(&self, seed: u64, watch: Watch<'_>) -> Result<()> {
        let (gpu, weights) = (&*self.gpu.0, self.weights()?);
        let by_host = gpu.capabilities().software;
        let (mut pauses, mut pending) = (Pauses::new(gpu), Pending::default());
        let mut values = vec![0f32; FILLED_ELEMENTS];
        for (stream, tensor) in (0u32..).zip(&self.layout.tensors) {
            if !by_host && matches!(tensor.init, Init::Normal(_)) {
                continue;
            }
            let mut done = 0;
            for run in self.layout.runs(tensor) {
                let buffer = weights.get(Buffer::Weights(run.shard))?;
                for start in (0..run.len).step_by(FILLED_ELEMENTS) {
                    let part = &mut values[..FILLED_ELEMENTS.min(run.len - start)];
                    match tensor.init {
                        Init::Ones => part.fill(1.0),
                        Init::Normal(std) => fill_weights(seed, stream, done, std, part),
                    }
                    let offset = (run.offset + start) as u64 * 4;
                    pending.queue(gpu, || gpu.write(buffer, offset, bytemuck::cast_slice(part)))?;
                    done += part.len() as u32;
                    if pauses.breathe().await {
                        pending.accepted().await?;
                        watch.at(0, 1, "initialise weights")?;
                    }
                }
            }
        }
        pending.accepted().await
    }

    fn initialize_matrices(&self, seed: u64) -> Result<()> {
        let (gpu, weights) = (&self.gpu.0, &*self.weights()?);
        let plan = initialize_plan(gpu.capabilities(), &self.layout)?;
        let submits = (plan.flops() / SUBMIT_FLOPS).ceil().clamp(1.0, 64.0) as usize;
        // Given back at the end of this function: the GPU keeps what it has been told to use.
        let mut resources = Resources::new(gpu);
        resources.allocate(&plan.buffers(), &[weights])?;
        let values = Initialize::new(seed, self.config.initializer_range);
        gpu.write(resources.get(Buffer::Step)?, 0, bytemuck::bytes_of(&values))?;
        let plan = resources.install(&plan, &[weights])?;
        gpu.submit(&[Replay { plan, rows: 1 }], submits, None).map(drop)
    }

    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    pub fn layout(&self) -> &Params {
        &self.layout
    }

    pub fn parameter_count(&self) -> usize {
        self.layout.parameter_count()
    }

    pub fn gpu(&self) -> &Rc<dyn Gpu> {
        &self.gpu.0
    }

    pub(super) fn weights(&self) -> Result<Rc<Resources>> {
        let weights = self.weights.borrow();
        weights.clone().ok_or_else(|| {
            Error::new(ErrorCode::Freed, "this model has been freed; create or load it again")
        })
    }

    /// Bytes on the GPU of the weights, the inference buffers and the trainers.
    pub fn gpu_bytes(&self) -> u64 {
        let weights = self.weights.borrow().as_ref().map_or(0, |w| w.bytes());
        let caches: u64 = self.caches.borrow().iter().map(|cache| cache.bytes()).sum();
        weights + caches + self.trainer_bytes.get()
    }

    /// Gives up the GPU memory. Every later use fails with code `freed`.
    pub fn free(&self) {
        self.caches.take();
        self.weights.replace(None);
    }

    /// Tensor names and shapes in the order of their data in a saved file.
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        self.layout.tensors.iter().map(|t| (t.name.clone(), t.shape.clone())).collect()
    }

    /// The first bytes of `model.safetensors`: length and header.
    pub fn save_header(&self) -> Vec<u8> {
        write_header(&self.tensors(), &[("format", "pt")])
    }

    /// A weight tensor's bytes, f32 little endian.
    pub async fn read_tensor(&self, index: usize) -> Result<Vec<u8>> {
        let elements: usize = tensor_at(&self.layout, index)?.shape.iter().product();
        self.read_piece(index, 0..elements as u64 * 4).await
    }

    /// Some of a weight tensor's bytes, whole elements.
    pub async fn read_piece(&self, index: usize, bytes: Range<u64>) -> Result<Vec<u8>> {
        let weights = self.weights()?;
        let tensor = tensor_at(&self.layout, index)?;
        let find = |name| weights.get(name);
        let place = Place { layout: &self.layout, tensor, set: Buffer::Weights, find: &find };
        place.read_bytes(&self.gpu.0, bytes)?.await
    }

    /// Notes that the weights have changed: what the caches hold is void.
    pub(crate) fn changed(&self) {
        self.version.set(self.version.get() + 1);
    }

    /// Counts another use of a key-value cache and returns its number, which is never 0.
    pub(super) fn next_epoch(&self) -> u64 {
        self.epoch.set(self.epoch.get() + 1);
        self.epoch.get()
    }
}

pub(super) fn tensor_at(layout: &Params, index: usize) -> Result<&Tensor> {
    let count = layout.tensors.len();
    layout
        .tensors
        .get(index)
        .ok_or_else(|| Error::options(format!("tensor {index} of {count} does not exist")))
}
