//! Builds a model from the files of a checkpoint, a piece at a time.

use super::lora::Adapter;
use super::tensor_storage::TensorStorage;
use crate::arch::Architecture;
use crate::checkpoint::{CheckpointReader, Wanted};
use crate::config::ModelConfig;
use crate::error::{Error, Result};
use crate::gpu::{Gpu, LocalFuture, Pending};
use crate::kernels::{Steering, WeightFormat};
use crate::params::Tensor;
use crate::plan::Buffer;
use crate::session::memory::MemoryBytes;
use crate::session::model::Model;
use crate::session::train::{TrainerOptions, check_trainer_memory};
use crate::session::weights::Weights;
use std::cell::OnceCell;
use std::rc::Rc;
use tinyloom_numbers::{BlockType, GROUP, all_finite, halves_are_finite, scaled};

/// Judges the config, takes headers, then allocates, then takes the tensors in pieces: a model that cannot
/// fit is refused before a header is read, a wrong file before anything is allocated, and a GPU that is too
/// small shows before a tensor is read.
pub struct ModelLoader {
    gpu: Rc<dyn Gpu>,
    config: ModelConfig,
    /// How the model is to hold its matrices.
    weights: WeightFormat,
    reader: CheckpointReader,
    /// The model, once there is memory for it.
    model: Rc<OnceCell<Rc<Model>>>,
    /// The uploads.
    pending: Pending,
    /// The numbers of a piece, and those of a tensor that waits for its last one.
    values: Vec<f32>,
    held: Vec<f32>,
}

impl std::fmt::Debug for ModelLoader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelLoader").field("config", &self.config).finish_non_exhaustive()
    }
}

impl ModelLoader {
    /// Judges the config: what cannot fit is refused before a byte of its files is asked for.
    ///
    /// # Errors
    /// `limit-exceeded`, `out-of-memory`.
    pub fn new(gpu: &Rc<dyn Gpu>, config: ModelConfig) -> Result<Self> {
        Self::packed(gpu, config, WeightFormat::F32)
    }

    /// Judges the config of a model that holds its matrices in another format. A piece is packed as it comes in, so
    /// that no matrix is ever whole in f32.
    ///
    /// # Errors
    /// As [`ModelLoader::new`].
    pub fn packed(gpu: &Rc<dyn Gpu>, config: ModelConfig, weights: WeightFormat) -> Result<Self> {
        Weights::planned(gpu, &config, weights)?;
        let reader = reader_of(&Architecture::of(&config), true);
        let (gpu, pending) = (Rc::clone(gpu), Pending::default());
        let (values, held) = (vec![], vec![]);
        Ok(Self { gpu, config, weights, reader, model: Rc::default(), pending, values, held })
    }

    /// Takes an adapter's tensors, by PEFT's names, where a model's would be allocated.
    pub fn of_adapter(adapter: &Adapter) -> Self {
        let model = adapter.model();
        let (gpu, config) = (Rc::clone(model.gpu()), model.config().clone());
        let reader = CheckpointReader::new(&model.tensors());
        let weights = model.weights();
        let model = Rc::new(OnceCell::from(Rc::clone(model)));
        let (values, held) = (vec![], vec![]);
        Self { gpu, config, weights, reader, model, pending: Pending::default(), values, held }
    }

    /// Judges the files of a checkpoint of a model that is there already, and takes none of its tensors.
    ///
    /// # Errors
    /// `invalid-checkpoint` where the config is another model's.
    pub fn checking(model: &Rc<Model>, config: ModelConfig) -> Result<Self> {
        let architecture = &model.layout().architecture;
        if Architecture::of(&config) != *architecture {
            return Err(Error::checkpoint(
                "config.json is of another model than the one under this adapter; give the files that it was loaded from",
            ));
        }
        let reader = reader_of(architecture, false);
        let (gpu, weights) = (Rc::clone(model.gpu()), model.weights());
        let model = Rc::new(OnceCell::from(Rc::clone(model)));
        Ok(Self {
            gpu,
            config,
            weights,
            reader,
            model,
            pending: Pending::default(),
            values: vec![],
            held: vec![],
        })
    }

    /// What the model is that it loads, or that its adapter makes of its base.
    pub(in crate::session) fn architecture(&self) -> Architecture {
        let made = self.model.get().map(|model| model.layout().architecture.clone());
        made.unwrap_or_else(|| Architecture::of(&self.config))
    }

    /// Refuses a trainer for which there is no memory beside what it trains.
    ///
    /// # Errors
    /// `limit-exceeded`, `out-of-memory`.
    pub(in crate::session) fn judge_trainer(&self, options: &TrainerOptions) -> Result<()> {
        let gpu = &*self.gpu;
        if gpu.capabilities().memory_bytes().is_none() {
            return Ok(());
        }
        let choices = options.choices(self.config.dropout, Steering::Nothing);
        if let Some(adapter) = self.model.get() {
            return check_trainer_memory(gpu, adapter.layout(), choices, MemoryBytes::default());
        }
        let layout = Weights::planned(&self.gpu, &self.config, self.weights)?;
        check_trainer_memory(gpu, &layout, choices, MemoryBytes::of_weights(&layout))
    }

    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The longest header that a file of these tensors may have.
    pub fn header_limit(&self) -> usize {
        self.reader.header_limit()
    }

    /// Takes a file's header and returns which byte ranges to hand in.
    ///
    /// # Errors
    /// `invalid-checkpoint`, naming the tensor.
    pub fn add_file(&mut self, name: &str, header: &[u8], file_length: u64) -> Result<Vec<Wanted>> {
        self.reader.add_file(name, header, file_length)
    }

    /// Makes the model's buffers, when all headers are in. The future owns what it uses; dropped, it
    /// leaves the loader without a model.
    ///
    /// # Errors
    /// `invalid-checkpoint` if a tensor is in no header; `limit-exceeded`, `out-of-memory`, `device-lost`.
    pub fn allocate(&self) -> Result<LocalFuture<Result<()>>> {
        self.reader.expect_all()?;
        if self.model.get().is_some() {
            return Ok(Box::pin(async { Ok(()) })); // an adapter's
        }
        self.gpu.push_error_scope();
        let made = Model::allocate(&self.gpu, self.config().clone(), self.weights);
        let checked = self.gpu.pop_error_scope();
        let slot = Rc::clone(&self.model);
        Ok(Box::pin(async move {
            let checked = checked.await;
            let model = made?;
            checked?;
            // Where two were under way the first one's model stays.
            let _ = slot.set(Rc::new(model));
            Ok(())
        }))
    }

    /// The model, whose weights may still be missing.
    ///
    /// # Errors
    /// `internal` before it is allocated.
    pub fn model(&self) -> Result<&Rc<Model>> {
        let model = self.model.get();
        model.ok_or_else(|| Error::internal("the loader has allocated no model yet"))
    }

    /// Converts and uploads the next bytes of a tensor, from its byte `begin` on, when the model is
    /// allocated. Pieces come in order and hold whole elements; those of a packed matrix whole groups of 32.
    ///
    /// # Errors
    /// `invalid-checkpoint` if the bytes are not those that the header announced, or a number among
    /// them is not finite; `device-lost`.
    pub fn set_piece(&mut self, name: &str, begin: u64, bytes: &[u8]) -> Result<()> {
        if self.set_halves(name, begin, bytes)? {
            return Ok(());
        }
        let start = self.reader.decode(name, begin, bytes, &mut self.values)?;
        self.set_values(name, start)
    }

    /// Takes blocks of ggml, which are a tensor's from its element `start` on. A matrix that is held in codes takes theirs
    /// as they are, and others take their values.
    ///
    /// # Errors
    /// As [`ModelLoader::set_piece`].
    pub fn set_blocks(
        &mut self,
        name: &str,
        start: u64,
        of: BlockType,
        bytes: &[u8],
    ) -> Result<()> {
        let model = Rc::clone(self.model()?);
        let (codes, factors) = of.read(bytes);
        let start = self.reader.advance(name, start * 4, codes.len() as u64 * 4, 4)?;
        self.expect_finite(name, start, GROUP, &factors)?;
        let (tensor, weights) = (tensor_of(&model, name)?, model.weights.buffers()?);
        let find = |name| weights.get(name);
        let storage =
            TensorStorage { layout: model.layout(), tensor, set: Buffer::Weights, find: &find };
        if storage.holds_codes(&codes) {
            let upload = || storage.write_codes(&self.gpu, start as usize, &codes, &factors);
            return self.pending.queue(&*self.gpu, upload);
        }
        scaled(&codes, &factors, &mut self.values);
        self.set_values(name, start)
    }

    /// Takes finite numbers in f16 as they are, where their matrix is held in f16; says whether it did.
    fn set_halves(&mut self, name: &str, begin: u64, bytes: &[u8]) -> Result<bool> {
        let model = Rc::clone(self.model()?);
        let Some(target) = self.reader.halves(name) else { return Ok(false) };
        let (tensor, weights) = (tensor_of(&model, &target)?, model.weights.buffers()?);
        let find = |name| weights.get(name);
        let storage =
            TensorStorage { layout: model.layout(), tensor, set: Buffer::Weights, find: &find };
        if !storage.holds_halves() || !halves_are_finite(bytes) {
            return Ok(false);
        }
        let start = self.reader.advance(name, begin, bytes.len() as u64, 2)? as usize;
        let upload = || storage.write_halves(&self.gpu, start, bytes);
        self.pending.queue(&*self.gpu, upload)?;
        Ok(true)
    }

    /// Uploads `values`, which are a tensor's from its element `start` on.
    fn set_values(&mut self, name: &str, start: u64) -> Result<()> {
        let model = Rc::clone(self.model()?);
        self.expect_finite(name, start, 1, &self.values)?;
        let Some(name) = &self.reader.target(name) else { return Ok(()) };
        let (tensor, weights) = (tensor_of(&model, name)?, model.weights.buffers()?);
        let find = |name| weights.get(name);
        let storage =
            TensorStorage { layout: model.layout(), tensor, set: Buffer::Weights, find: &find };
        let held = &mut self.held;
        let upload = || storage.write_stored(&self.gpu, start as usize, &self.values, held);
        self.pending.queue(&*self.gpu, upload)
    }

    /// Refuses numbers that are not finite. Each stands for `each` elements of a tensor, from `start` on.
    fn expect_finite(&self, name: &str, start: u64, each: usize, numbers: &[f32]) -> Result<()> {
        if all_finite(numbers) {
            return Ok(());
        }
        let Some(i) = numbers.iter().position(|x| !x.is_finite()) else { return Ok(()) };
        let (at, why) = (start + (i * each) as u64, "a weight has to be finite");
        Err(self.reader.refuse_value(name, at, numbers[i], why))
    }

    /// The model, once every tensor has arrived.
    ///
    /// # Errors
    /// `invalid-checkpoint`, naming what is missing; what the device refused of the uploads.
    pub async fn finish(mut self) -> Result<Rc<Model>> {
        self.reader.finish()?;
        self.pending.accepted().await?;
        let model = self.model()?;
        model.changed();
        Ok(Rc::clone(model))
    }
}

/// Reads the tensors of a model. One whose head is its embedding may have both stored.
fn reader_of(model: &Architecture, compared: bool) -> CheckpointReader {
    let mut reader = CheckpointReader::new(&model.tensors());
    if model.head == model.embedding {
        reader.tie(&model.weights[model.embedding].params[0].name, compared);
    }
    reader
}

fn tensor_of<'a>(model: &'a Model, name: &str) -> Result<&'a Tensor> {
    let tensor = model.layout().tensors.iter().find(|t| t.name == name);
    tensor.ok_or_else(|| Error::checkpoint(format!("{name} is not a tensor of this model")))
}
