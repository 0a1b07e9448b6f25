//! A copy on the GPU of a model's weights, or of a trainer's state, as they are between two steps: it is
//! read back beside the steps that follow.

use super::tensor_storage::{FindBuffer, header_of, read_stored};
use crate::error::{Error, Result, room};
use crate::gpu::{BufferCopy, BufferId, LocalFuture, Region, queue_checked};
use crate::optim::{Content, StateSet, Stored, stored_sets};
use crate::plan::{Buffer, BufferSizes, METRICS_BYTES, OPTIMIZER_BYTES};
use crate::session::memory::{self, MemoryBytes, Purpose};
use crate::session::model::Model;
use crate::session::resources::Resources;
use crate::session::train::{Trainer, TrainerState};
use std::ops::Range;
use std::rc::Rc;

/// A snapshot whose copies have been submitted.
pub type Taken = LocalFuture<Result<Snapshot>>;

/// Bytes between two tensors that are read with them rather than cut out.
const GAP: u64 = 1 << 12;

/// Tensors of one moment, written as those of a save are.
#[derive(Debug)]
pub struct Snapshot {
    model: Rc<Model>,
    /// Its tensors, in the order of a save.
    stored: Vec<Stored>,
    copies: Resources,
    /// The state of a trainer, without the numbers in `copies`.
    state: Option<TrainerState>,
}

impl Snapshot {
    /// Copies a model's weights, after the steps that are on their way.
    ///
    /// # Errors
    /// `freed`, `out-of-memory`, `device-lost`; `invalid-options` of a packed model, which never changes.
    pub fn of_model(model: &Rc<Model>) -> Result<Taken> {
        let weights = model.weights.buffers()?;
        model.expect_saved()?;
        let set = StateSet::new("", Buffer::Weights, Content::Numbers);
        let stored = stored_sets(&model.weights.layout, &[set]);
        Self::take(model, stored, None, &|name| weights.get(name))
    }

    /// Copies a trainer's moments and state; none in the middle of an accumulation.
    ///
    /// # Errors
    /// As [`Snapshot::of_model`].
    pub fn of_trainer(trainer: &Trainer) -> Result<Option<Taken>> {
        let Some((stored, state)) = trainer.between_steps() else { return Ok(None) };
        let find = |name| trainer.buffer(name);
        Self::take(&trainer.model, stored, Some(state), &find).map(Some)
    }

    fn take(
        model: &Rc<Model>,
        stored: Vec<Stored>,
        state: Option<TrainerState>,
        find: FindBuffer<'_>,
    ) -> Result<Taken> {
        let (model, gpu) = (Rc::clone(model), Rc::clone(model.gpu()));
        let mut sizes = BufferSizes::new();
        for slice in stored.iter().flat_map(|stored| &stored.slices) {
            let bytes = sizes.entry(slice.buffer).or_default();
            *bytes = (*bytes).max(slice.offset + slice.bytes);
        }
        if state.is_some() {
            for (name, bytes) in
                [(Buffer::Optimizer, OPTIMIZER_BYTES), (Buffer::Metrics, METRICS_BYTES)]
            {
                sizes.insert(name, bytes);
            }
        }
        let asked = MemoryBytes::of_sizes(&sizes);
        memory::check_memory(&*gpu, Purpose::Snapshot, &asked)?;
        let (copies, accepted) = queue_checked(&*gpu, || {
            let mut copies = Resources::new(&gpu);
            for (&name, &bytes) in sizes.iter() {
                let to = copies.add_as(&format!("a snapshot of {name:?}"), name, bytes)?;
                let from = Region { buffer: find(name)?, offset: 0, bytes };
                gpu.copy(&[BufferCopy { from, to, at: 0 }])?;
            }
            Ok(copies)
        })?;
        Ok(Box::pin(async move {
            let accepted = accepted.await;
            accepted.map_err(|error| memory::explained(error, Purpose::Snapshot, &asked))?;
            Ok(Self { model, stored, copies, state })
        }))
    }

    /// The first bytes of the file that a save would write.
    pub fn save_header(&self) -> Vec<u8> {
        header_of(&self.stored)
    }

    /// Where these bytes of the file's data are on the GPU: each stretch's buffer, offset and length, in the file's
    /// order.
    fn stretches(&self, bytes: Range<u64>) -> Result<Vec<(BufferId, u64, u64)>> {
        let (mut found, mut at) = (vec![], 0);
        for stored in &self.stored {
            let own = bytes.start.saturating_sub(at)..bytes.end.saturating_sub(at);
            for slice in stored.cut(&own) {
                found.push((self.copies.get(slice.buffer)?, slice.offset, slice.bytes));
            }
            at += stored.bytes();
        }
        Ok(found)
    }

    /// Bytes of the file's data, which follow its header.
    ///
    /// # Errors
    /// `device-lost`.
    pub async fn read(&self, bytes: Range<u64>) -> Result<Vec<u8>> {
        let find = |name| self.copies.get(name);
        // Stretches of the file, each with its tensor if that has another order here.
        let (mut cuts, mut next, mut at) = (vec![], bytes.start, 0);
        for stored in &self.stored {
            let end = at + stored.bytes();
            let (first, last) = (at.max(bytes.start), end.min(bytes.end));
            if stored.swap.is_some() && first < last {
                cuts.push((next..first, None));
                cuts.push((first - at..last - at, Some(stored)));
                next = last;
            }
            at = end;
        }
        cuts.push((next..bytes.end, None));
        let (count, mut data) = (cuts.len(), vec![]);
        for (bytes, reordered) in cuts {
            let part = match reordered {
                None => self.read_rows(bytes).await?,
                Some(stored) => read_stored(self.model.gpu(), stored, &bytes, &find)?.await?,
            };
            if count == 1 {
                return Ok(part);
            }
            data.extend_from_slice(&part);
        }
        Ok(data)
    }

    /// Bytes of tensors that have the file's order here. Neighbours come in one readback.
    async fn read_rows(&self, bytes: Range<u64>) -> Result<Vec<u8>> {
        let stretches = self.stretches(bytes.clone())?;
        let mut data = Vec::new();
        for near in stretches.chunk_by(|one, next| {
            one.0 == next.0 && one.1 + one.2 <= next.1 && next.1 - one.1 - one.2 <= GAP
        }) {
            let Some((&(buffer, begin, _), &(_, offset, len))) = near.first().zip(near.last())
            else {
                continue;
            };
            let region = Region { buffer, offset: begin, bytes: offset + len - begin };
            let mut read = self.model.gpu().read(region)?.await?;
            let mut kept = 0;
            for &(_, offset, len) in near {
                let (start, len) = ((offset - begin) as usize, len as usize);
                read.copy_within(start..start + len, kept);
                kept += len;
            }
            read.truncate(kept);
            // Most pieces are one stretch, and need no second copy.
            if kept as u64 == bytes.end - bytes.start {
                return Ok(read);
            }
            if data.is_empty() {
                data = room("a piece of the snapshot", bytes.end - bytes.start)?;
            }
            data.extend_from_slice(&read);
        }
        Ok(data)
    }

    /// The text of a trainer's `trainer_state.json`.
    ///
    /// # Errors
    /// `device-lost`; `internal` for a model's.
    pub async fn state(&self) -> Result<String> {
        let state = self.state.clone();
        let mut state = state.ok_or_else(|| Error::internal("a model has no trainer's state"))?;
        state.optimizer = self.read_bits(Buffer::Optimizer, OPTIMIZER_BYTES).await?;
        state.metrics = self.read_bits(Buffer::Metrics, METRICS_BYTES).await?;
        state.base = self.model.weights.base_checksum().await?;
        state.to_json()
    }

    async fn read_bits(&self, name: Buffer, bytes: u64) -> Result<Vec<u32>> {
        let region = Region { buffer: self.copies.get(name)?, offset: 0, bytes };
        Ok(bytemuck::pod_collect_to_vec(&self.model.gpu().read(region)?.await?))
    }
}
