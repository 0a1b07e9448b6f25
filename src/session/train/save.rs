//! Writing a training run: `optimizer.safetensors` and `trainer_state.json`.

use super::Trainer;
use super::state::{TrainerState, saved};
use crate::error::{Error, Result};
use crate::gpu::Region;
use crate::optim::Stored;
use crate::plan::{Buffer, METRICS_BYTES, OPTIMIZER_BYTES};
use crate::session::weights::tensor_storage::{header_of, read_stored};
use std::ops::Range;

impl Trainer {
    /// The tensors of `optimizer.safetensors`, in the order of their data.
    pub(in crate::session) fn saved(&self) -> Vec<Stored> {
        saved(&self.options.borrow(), self.progress(), self.layout())
    }

    /// Names and shapes in `optimizer.safetensors`, in the order of their data.
    pub fn optimizer_tensors(&self) -> Vec<(String, Vec<usize>)> {
        self.saved().into_iter().map(|stored| (stored.name, stored.shape)).collect()
    }

    /// The first bytes of `optimizer.safetensors`: length and header.
    pub fn save_header(&self) -> Vec<u8> {
        header_of(&self.saved())
    }

    /// An optimizer tensor's bytes as the file has them, or some of them.
    ///
    /// # Errors
    /// `freed`, `device-lost`.
    pub async fn read_optimizer_tensor(
        &self,
        index: usize,
        bytes: Option<Range<u64>>,
    ) -> Result<Vec<u8>> {
        let saved = self.saved();
        let count = saved.len();
        let stored = saved
            .get(index)
            .ok_or_else(|| Error::options(format!("tensor {index} of {count} does not exist")))?;
        let find = |name| self.buffer(name);
        let bytes = bytes.unwrap_or(0..stored.bytes());
        read_stored(self.model.gpu(), stored, &bytes, &find)?.await
    }

    async fn read_bits(&self, name: Buffer, bytes: u64) -> Result<Vec<u32>> {
        let region = Region { buffer: self.buffer(name)?, offset: 0, bytes };
        Ok(bytemuck::pod_collect_to_vec(&self.model.gpu().read(region)?.await?))
    }

    /// The text of `trainer_state.json`.
    ///
    /// # Errors
    /// `freed`, `device-lost`.
    pub async fn state(&self) -> Result<String> {
        let mut state = TrainerState::new(
            self.options(),
            self.progress().kept(),
            self.read_bits(Buffer::Optimizer, OPTIMIZER_BYTES).await?,
            self.read_bits(Buffer::Metrics, METRICS_BYTES).await?,
            self.losses.borrow().get(),
        );
        state.base = self.model.weights.base_checksum().await?;
        state.to_json()
    }

    /// What a save would hold, without the numbers on the GPU. None in the middle of an accumulation, and while
    /// averages are in the weights' place.
    pub(in crate::session) fn between_steps(&self) -> Option<(Vec<Stored>, TrainerState)> {
        let progress = self.progress();
        let state = || {
            let losses = self.losses.borrow().get();
            TrainerState::new(self.options(), progress.kept(), vec![], vec![], losses)
        };
        let between = progress.micro_step == 0 && !self.exchanged.get();
        between.then(|| (self.saved(), state()))
    }
}
