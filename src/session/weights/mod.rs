//! A model's weights on a GPU: what of a model does not depend on how it is used.

pub(super) mod loader;
pub(super) mod lora;
pub(super) mod snapshot;
pub(super) mod tensor_storage;

use self::tensor_storage::TensorStorage;
use super::memory::{self, MemoryBytes, Purpose};
use super::progress::Progress;
use super::resources::Resources;
use super::step::Initialize;
use super::throughput::PageYields;
use crate::arch::{Architecture, Init};
use crate::checkpoint::write_header;
use crate::config::{LoraConfig, ModelConfig};
use crate::error::{Error, ErrorCode, Result};
use crate::gpu::{Gpu, Pending, Region, Replay, create_checked};
use crate::kernels::WeightFormat;
use crate::lower::{CHECKSUM_BYTES, OPTIONS_STRIDE, checksum_plan, initialize_plan};
use crate::params::{Params, Tensor};
use crate::plan::Buffer;
use crate::random::{fill_uniform, fill_weights};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

/// Elements generated between yields: a few milliseconds on a slow host.
const FILLED_ELEMENTS: usize = 1 << 16;

/// Operations of an initialisation that even a slow GPU does within a tenth of a second.
const SUBMIT_FLOPS: f64 = 2e10;

/// A model's configuration, its layout, and its weights on the GPU.
#[derive(Debug)]
pub(super) struct Weights {
    pub gpu: GpuRef,
    pub config: ModelConfig,
    pub layout: Rc<Params>,
    buffers: RefCell<Option<Rc<Resources>>>,
    /// Counts changes of the weights.
    version: Cell<u64>,
    /// Bytes of what plans own that are bound to a cache of these weights.
    pub bound_bytes: Cell<u64>,
    /// The checksum, with the version of the weights that it was made of.
    checksum: Cell<Option<(u64, u32)>>,
    /// The base's weights, where these are a LoRA adapter's.
    base: Option<Rc<Self>>,
}

/// A GPU that can be printed.
#[derive(Clone)]
pub(super) struct GpuRef(pub Rc<dyn Gpu>);

impl std::fmt::Debug for GpuRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Gpu").field(self.0.capabilities()).finish()
    }
}

impl Weights {
    /// Weights that are all zero.
    ///
    /// # Errors
    /// `limit-exceeded`, `out-of-memory`.
    pub fn allocate(gpu: &Rc<dyn Gpu>, config: ModelConfig, format: WeightFormat) -> Result<Self> {
        let layout = Self::planned(gpu, &config, format)?;
        Self::allocated(gpu, config, layout, None)
    }

    /// An adapter's weights over a base's: A drawn from the seed, B zero.
    ///
    /// # Errors
    /// `invalid-options`, `limit-exceeded`, `out-of-memory`, `freed`, `device-lost`, `aborted`.
    pub async fn adapted(
        base: &Rc<Self>,
        lora: &LoraConfig,
        progress: Progress<'_>,
    ) -> Result<Self> {
        base.buffers()?;
        let layout = base.layout.adapted(base.layout.architecture.adapted(lora)?)?;
        progress.report(0, 1, "initialise weights")?;
        let gpu = &base.gpu.0;
        let asked = MemoryBytes::of_weights(&layout);
        memory::check_memory(&**gpu, Purpose::Adapter, &asked)?;
        let over = Some(Rc::clone(base));
        let allocate = || Self::allocated(gpu, base.config.clone(), layout, over);
        let allocated = create_checked(&**gpu, allocate).await;
        let weights =
            allocated.map_err(|error| memory::explained(error, Purpose::Adapter, &asked))?;
        weights.initialize(lora.seed, progress).await?;
        progress.report(1, 1, "initialise weights")?;
        Ok(weights)
    }

    /// The layout of weights for which there is memory, as far as that is known, with matrices in a format.
    ///
    /// # Errors
    /// `limit-exceeded`, `out-of-memory`.
    pub fn planned(
        gpu: &Rc<dyn Gpu>,
        config: &ModelConfig,
        format: WeightFormat,
    ) -> Result<Params> {
        let binding = gpu.capabilities().limits.shard_bytes();
        let layout = Params::packed(Architecture::of(config), binding, format)?;
        memory::check_memory(&**gpu, Purpose::Model, &MemoryBytes::of_weights(&layout))?;
        Ok(layout)
    }

    fn allocated(
        gpu: &Rc<dyn Gpu>,
        config: ModelConfig,
        layout: Params,
        base: Option<Rc<Self>>,
    ) -> Result<Self> {
        let mut buffers = Resources::new(gpu);
        for (index, shard) in layout.own_shards() {
            buffers.add(Buffer::Weights(index), shard.len as u64 * 4)?;
        }
        for (number, bytes) in layout.own_packed() {
            buffers.add(Buffer::Packed(number), bytes)?;
        }
        Ok(Self {
            gpu: GpuRef(Rc::clone(gpu)),
            config,
            layout: Rc::new(layout),
            buffers: RefCell::new(Some(Rc::new(buffers))),
            version: Cell::new(0),
            bound_bytes: Cell::new(0),
            checksum: Cell::new(None),
            base,
        })
    }

    /// Weights as transformers initialises them.
    ///
    /// # Errors
    /// `limit-exceeded`, `out-of-memory`, `device-lost`, `aborted`.
    pub async fn create(
        gpu: &Rc<dyn Gpu>,
        config: ModelConfig,
        seed: u64,
        progress: Progress<'_>,
    ) -> Result<Self> {
        progress.report(0, 1, "initialise weights")?;
        let layout = Self::planned(gpu, &config, WeightFormat::F32)?;
        let asked = MemoryBytes::of_weights(&layout);
        let allocate = || {
            let weights = Self::allocated(gpu, config, layout, None)?;
            if !gpu.capabilities().software {
                weights.initialize_matrices(seed)?;
            }
            Ok(weights)
        };
        let allocated = create_checked(&**gpu, allocate).await;
        let weights =
            allocated.map_err(|error| memory::explained(error, Purpose::Model, &asked))?;
        weights.initialize(seed, progress).await?;
        progress.report(1, 1, "initialise weights")?;
        Ok(weights)
    }

    /// Fills each tensor as its [`Init`] says, with yields for what else the host has to do. Normal
    /// ones are drawn by the GPU or, where that is a CPU, by this one, to the same bits.
    async fn initialize(&self, seed: u64, progress: Progress<'_>) -> Result<()> {
        let (gpu, buffers) = (&*self.gpu.0, self.buffers()?);
        let by_host = gpu.capabilities().software;
        let (mut yields, mut pending) = (PageYields::new(gpu), Pending::default());
        let mut values = vec![0f32; FILLED_ELEMENTS];
        for (stream, tensor) in (0u32..).zip(&self.layout.tensors) {
            if !by_host && matches!(tensor.init, Init::Normal(_)) {
                continue;
            }
            let mut done = 0;
            for run in self.layout.runs(tensor) {
                let buffer = buffers.get(Buffer::Weights(run.shard))?;
                for start in (0..run.len).step_by(FILLED_ELEMENTS) {
                    let part = &mut values[..FILLED_ELEMENTS.min(run.len - start)];
                    match tensor.init {
                        Init::Ones => part.fill(1.0),
                        Init::Zeros => part.fill(0.0),
                        Init::Uniform(bound) => fill_uniform(seed, stream, done, bound, part),
                        Init::Normal(std) => fill_weights(seed, stream, done, std, part),
                    }
                    let offset = (run.offset + start) as u64 * 4;
                    pending.queue(gpu, || gpu.write(buffer, offset, bytemuck::cast_slice(part)))?;
                    done += part.len() as u32;
                    if yields.yield_to_page().await {
                        pending.accepted().await?;
                        progress.report(0, 1, "initialise weights")?;
                    }
                }
            }
        }
        if self.base.is_none() {
            self.clear_padding(&buffers, &mut pending)?;
        }
        pending.accepted().await
    }

    /// The row of the token for padding begins at 0, as that of PyTorch's embeddings with a `padding_idx` does.
    fn clear_padding(&self, buffers: &Resources, pending: &mut Pending) -> Result<()> {
        let Architecture { padding, embedding, hidden, .. } = self.layout.architecture;
        let Some(row) = padding else { return Ok(()) };
        let tensor = self.layout.tensors.iter().find(|tensor| tensor.matrix == embedding);
        let tensor = tensor.ok_or_else(|| Error::internal("the embedding has no tensor"))?;
        let (set, find) = (Buffer::Weights as fn(usize) -> Buffer, |name| buffers.get(name));
        let storage = TensorStorage { layout: &self.layout, tensor, set, find: &find };
        let gpu = &self.gpu.0;
        pending.queue(&**gpu, || storage.write(gpu, row * hidden, &vec![0.0; hidden]))
    }

    fn initialize_matrices(&self, seed: u64) -> Result<()> {
        let (gpu, weights) = (&self.gpu.0, &*self.buffers()?);
        let plan = initialize_plan(gpu.capabilities(), &self.layout)?;
        let submits = (plan.flops() / SUBMIT_FLOPS).ceil().clamp(1.0, 64.0) as usize;
        // Given back at the end of this function: the GPU keeps what submitted work uses.
        let mut resources = Resources::new(gpu);
        resources.allocate(&plan.buffers(), &[weights])?;
        for (place, std) in (0u64..).zip(self.layout.deviations()) {
            let values = Initialize::new(seed, std);
            let (buffer, offset) = (resources.get(Buffer::Step)?, place * OPTIONS_STRIDE);
            gpu.write(buffer, offset, bytemuck::bytes_of(&values))?;
        }
        let plan = resources.install(&plan, &[weights])?;
        gpu.submit(&[Replay::new(plan, 1)], submits, None).map(drop)
    }

    /// The buffers that hold them, and those of the base under them.
    ///
    /// # Errors
    /// `freed`.
    pub fn buffers(&self) -> Result<Rc<Resources>> {
        let own = self.buffers.borrow().clone();
        let freed = |what| Error::new(ErrorCode::Freed, what);
        let Some(base) = &self.base else {
            return own.ok_or_else(|| freed("this model has been freed; create or load it again"));
        };
        let own = own.ok_or_else(|| {
            freed("this adapter has been freed, or merged into its base; create or load it again")
        })?;
        let under = base.buffers.borrow().clone();
        let under = under
            .ok_or_else(|| freed("the model under this adapter has been freed; load both again"))?;
        Ok(Rc::new(Resources::over(&self.gpu.0, [own, under])))
    }

    /// Refuses what only a model does that holds the checkpoint's own numbers.
    ///
    /// # Errors
    /// `invalid-options`.
    pub fn expect_own_numbers(&self, what: &str) -> Result<()> {
        if self.layout.own_packed().next().is_none() {
            return Ok(());
        }
        Err(Error::options(format!(
            "this model holds its matrices in {}, and {what} needs the checkpoint's own numbers: \
             adapter.saveMerged(source) writes the checkpoint with an adapter added, adapter.save() the adapter",
            self.layout.weights.name()
        )))
    }

    /// Bytes on the GPU.
    pub fn bytes(&self) -> u64 {
        self.buffers.borrow().as_ref().map_or(0, |buffers| buffers.bytes())
    }

    pub fn free(&self) {
        self.buffers.replace(None);
    }

    /// A checksum of the base's weights, where these are a LoRA adapter's. It is the same on every GPU. None for a
    /// model without a base.
    ///
    /// # Errors
    /// `freed`, `out-of-memory`, `device-lost`.
    pub async fn base_checksum(&self) -> Result<Option<u32>> {
        match &self.base {
            Some(base) => base.checksum().await.map(Some),
            None => Ok(None),
        }
    }

    async fn checksum(&self) -> Result<u32> {
        let (gpu, weights, version) = (&self.gpu.0, self.buffers()?, self.version());
        if let Some((known, sum)) = self.checksum.get()
            && known == version
        {
            return Ok(sum);
        }
        let plan = checksum_plan(gpu.capabilities(), &self.layout)?;
        let mut resources = Resources::new(gpu);
        let run = create_checked(&**gpu, || {
            resources.allocate(&plan.buffers(), &[&weights])?;
            let buffer = resources.get(Buffer::Checksums)?;
            let sums = self.layout.shards.len() + self.layout.own_packed().count();
            let bytes = sums as u64 * CHECKSUM_BYTES;
            let installed = resources.install(&plan, &[&weights])?;
            Ok((installed, Region { buffer, offset: 0, bytes }))
        });
        let (installed, region) = run.await?;
        let read = gpu.submit(&[Replay::new(installed, 1)], 1, Some(region))?;
        let sums: Vec<u32> = bytemuck::pod_collect_to_vec(&read.await?);
        // By their places, so that shards do not change places unseen.
        let sum = sums.iter().fold(0u32, |sum, &x| sum.rotate_left(5).wrapping_add(x));
        self.checksum.set(Some((version, sum)));
        Ok(sum)
    }

    /// How often the weights have changed, or those under them.
    pub fn version(&self) -> u64 {
        self.version.get() + self.base.as_ref().map_or(0, |base| base.version())
    }

    /// How often the weights of the base have changed, where these are a LoRA adapter's.
    pub fn base_version(&self) -> Option<u64> {
        self.base.as_ref().map(|base| base.version())
    }

    /// Notes that the weights have changed.
    pub fn changed(&self) {
        self.version.set(self.version.get() + 1);
    }

    /// Tensor names and shapes in the order of their data in a saved file.
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        self.layout.tensors.iter().map(|t| (t.name.clone(), t.shape.clone())).collect()
    }

    /// The first bytes of `model.safetensors`: length and header.
    pub fn save_header(&self) -> Vec<u8> {
        write_header(&self.tensors(), &[("format", "pt")])
    }

    /// Some of a weight tensor's bytes, whole elements.
    pub async fn read_piece(&self, index: usize, bytes: Range<u64>) -> Result<Vec<u8>> {
        let buffers = self.buffers()?;
        self.expect_own_numbers("save")?;
        let tensor = tensor_at(&self.layout, index)?;
        let find = |name| buffers.get(name);
        let storage =
            TensorStorage { layout: &self.layout, tensor, set: Buffer::Weights, find: &find };
        storage.read_bytes(&self.gpu.0, bytes)?.await
    }
}

impl Weights {
    /// A tensor as the checkpoint has it, row-major, in f32; of a packed matrix what its codes stand for.
    ///
    /// # Errors
    /// `invalid-options` for a name that is no tensor's, `freed`, `out-of-memory`, `device-lost`.
    pub async fn read_named(&self, name: &str) -> Result<Vec<f32>> {
        let (buffers, tensor) = (self.buffers()?, self.named(name)?);
        let find = |name| buffers.get(name);
        let storage =
            TensorStorage { layout: &self.layout, tensor, set: Buffer::Weights, find: &find };
        let bytes = tensor.shape.iter().product::<usize>() as u64 * 4;
        let read = storage.read_bytes(&self.gpu.0, 0..bytes)?.await?;
        Ok(bytemuck::pod_collect_to_vec(&read))
    }

    /// Replaces a tensor; a matrix that is held packed is packed.
    ///
    /// # Errors
    /// `invalid-options` for another name, number of values, or a value that is not finite; `freed`, `device-lost`.
    pub async fn write_named(&self, name: &str, values: &[f32]) -> Result<()> {
        let (buffers, tensor) = (self.buffers()?, self.named(name)?);
        let count: usize = tensor.shape.iter().product();
        if values.len() != count {
            let shape: Vec<_> = tensor.shape.iter().map(ToString::to_string).collect();
            return Err(Error::options(format!(
                "{} values for {name}, which is {} = {count} numbers",
                values.len(),
                shape.join(" × ")
            )));
        }
        if let Some(i) = values.iter().position(|x| !x.is_finite()) {
            return Err(Error::options(format!(
                "values[{i}] is {}; it has to be finite",
                values[i]
            )));
        }
        let find = |name| buffers.get(name);
        let storage =
            TensorStorage { layout: &self.layout, tensor, set: Buffer::Weights, find: &find };
        let (gpu, mut held) = (&self.gpu.0, vec![]);
        let (mut yields, mut pending) = (PageYields::new(&**gpu), Pending::default());
        for (piece, part) in values.chunks(FILLED_ELEMENTS).enumerate() {
            let write = || storage.write_stored(gpu, piece * FILLED_ELEMENTS, part, &mut held);
            // Each piece changes the weights: a step between two of them reads what is there then.
            self.changed();
            pending.queue(&**gpu, write)?;
            if yields.yield_to_page().await {
                pending.accepted().await?;
            }
        }
        pending.accepted().await
    }

    fn named(&self, name: &str) -> Result<&Tensor> {
        let found = self.layout.tensors.iter().find(|tensor| tensor.name == name);
        found.ok_or_else(|| {
            let first = self.layout.tensors.first().map_or("", |tensor| &tensor.name);
            Error::options(format!(
                "there is no parameter {name}; model.parameters has the names, such as {first}"
            ))
        })
    }
}

/// Refuses to read matrices in another format than that in which a packed model holds them.
///
/// # Errors
/// `invalid-options`.
pub(super) fn check_format(layout: &Params, weights: WeightFormat) -> Result<()> {
    let held = layout.weights;
    if held == WeightFormat::F32 || held == weights {
        return Ok(());
    }
    let other = if weights == WeightFormat::F32 { "" } else { " or \"f32\"" };
    Err(Error::options(format!(
        "weights is {name:?}, and this model holds its matrices in {}: leave weights out, or load the model with \
         weights: {name:?}{other}",
        held.name(),
        name = weights.name()
    )))
}

pub(super) fn tensor_at(layout: &Params, index: usize) -> Result<&Tensor> {
    let count = layout.tensors.len();
    layout
        .tensors
        .get(index)
        .ok_or_else(|| Error::options(format!("tensor {index} of {count} does not exist")))
}
