//! Continues a saved training run.

use super::model::{Model, write_tensor};
use super::trainer::{Trainer, TrainerState, saved_sets};
use crate::checkpoint::{CheckpointReader, Wanted};
use crate::error::{Error, Result};
use crate::plan::Buffer;
use std::rc::Rc;

/// Builds a trainer from a saved state, a tensor at a time.
#[derive(Debug)]
pub struct Resume {
    trainer: Rc<Trainer>,
    state: TrainerState,
    reader: CheckpointReader,
}

impl Resume {
    /// Makes a trainer with the saved options.
    ///
    /// # Errors
    /// `invalid-checkpoint` for a state that cannot be read; as [`Trainer::create`].
    pub async fn new(model: &Rc<Model>, state: &str) -> Result<Self> {
        let state = TrainerState::from_json(state)?;
        let trainer = Trainer::create(model, state.options.clone()).await?;
        trainer.set_progress(state.progress.kept());
        let reader = CheckpointReader::new(&trainer.optimizer_tensors());
        Ok(Self { trainer, state, reader })
    }

    /// Takes a file's header and tells which byte ranges to hand in.
    ///
    /// # Errors
    /// `invalid-checkpoint`, naming the tensor.
    pub fn add_file(&mut self, name: &str, header: &[u8], file_length: u64) -> Result<Vec<Wanted>> {
        self.reader.add_file(name, header, file_length)
    }

    /// Uploads one tensor.
    ///
    /// # Errors
    /// `invalid-checkpoint` if the bytes are not those that the header announced.
    pub fn set_tensor(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let values = self.reader.decode(name, bytes)?;
        let layout = self.trainer.model.layout();
        for (suffix, set) in saved_sets(self.state.progress) {
            let own = |t: &&crate::layout::Tensor| {
                name.strip_prefix(t.name.as_str()).and_then(|rest| rest.strip_prefix('.'))
                    == Some(suffix)
            };
            if let Some(tensor) = layout.tensors.iter().find(own) {
                let find = |name| self.trainer.buffer(name);
                return write_tensor(self.trainer.model.gpu(), layout, tensor, set, &find, &values);
            }
        }
        Err(Error::checkpoint(format!("{name} is not a tensor of this optimizer")))
    }

    /// The trainer, once every tensor has arrived.
    ///
    /// # Errors
    /// `invalid-checkpoint`, naming what is missing.
    pub fn finish(self) -> Result<Rc<Trainer>> {
        self.reader.finish()?;
        let gpu = self.trainer.model.gpu();
        gpu.write(
            self.trainer.buffer(Buffer::Optimizer)?,
            0,
            bytemuck::cast_slice(&self.state.optimizer),
        )?;
        gpu.write(
            self.trainer.buffer(Buffer::Metrics)?,
            0,
            bytemuck::cast_slice(&self.state.metrics),
        )?;
        Ok(self.trainer)
    }
}
