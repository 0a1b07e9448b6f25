//! The pass over several decoded rows, bound to a cache.

use super::annex::Annex;
use super::key_value_cache::{KeyValueCache, Room};
use super::model::Model;
use super::pace::Work;
use super::step::{Choice, Step};
use crate::error::Result;
use crate::gpu::{BufferId, PlanId, Region};
use crate::lower::{CacheShape, SeveralRows, several_plan};
use crate::plan::Buffer;
use std::cell::Cell;
use std::rc::Rc;

/// A row to decode next.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RowState {
    pub token: u32,
    /// Of the token in its text.
    pub position: usize,
}

/// The plan, what it reads and writes besides the room's buffers, and what it costs.
#[derive(Debug)]
pub(super) struct SeveralPass {
    model: Rc<Model>,
    annex: Annex,
    rows: usize,
    /// Rows of the cache from one text to the next; 0 where all rows are of one.
    stride: usize,
    pub work: Work,
    pub largest: Work,
}

impl SeveralPass {
    /// A pass for a cache's room as it is.
    ///
    /// # Arguments
    /// `batch`: the shape of a cache of its own; none to decode `rows` rows of the room's text.
    pub async fn new(
        model: &Rc<Model>,
        cache: &KeyValueCache,
        batch: Option<CacheShape>,
        rows: usize,
    ) -> Result<Self> {
        let (caps, stride) = (model.gpu().capabilities(), Cell::new(0));
        let of =
            if batch.is_some() { SeveralRows::OfTexts(rows) } else { SeveralRows::OfOne(rows) };
        let make = |shape, slots: &[u64]| {
            let (plan, cache_rows) =
                several_plan(caps, model.layout(), shape, cache.options, slots, of)?;
            stride.set(cache_rows);
            Ok(plan)
        };
        let (annex, plan) = Annex::new(&model.weights, cache, batch, &make, &|_| Ok(())).await?;
        model.sampler_bytes.set(model.sampler_bytes.get() + annex.resources.bytes());
        let stride = if batch.is_some() { stride.get() } else { 0 };
        let (work, largest) = (Work::of(&plan), Work::of_largest(&plan));
        Ok(Self { model: Rc::clone(model), annex, rows, stride, work, largest })
    }

    pub const fn plan(&self) -> PlanId {
        self.annex.plan
    }

    /// Whether its plan is bound to what the cache has now.
    pub fn fits(&self, cache: &KeyValueCache) -> bool {
        self.annex.is_of(cache)
    }

    fn buffer(&self, name: Buffer) -> Result<BufferId> {
        self.annex.resources.get(name)
    }

    /// Copies the keys and values of `tokens` tokens from a room's text to that of a row.
    pub fn copy_text(&self, room: &Room, row: usize, tokens: usize) -> Result<()> {
        for layer in 0..self.model.config().num_hidden_layers {
            let from = room.resources.get(Buffer::Cache(layer))?;
            let to = self.buffer(Buffer::BatchCache(layer))?;
            let all = self.annex.resources.bytes_of(Buffer::BatchCache(layer)).unwrap_or(0);
            let row_bytes = all / (self.rows * self.stride) as u64;
            let count = tokens.min(room.cache_rows).min(self.stride) as u64;
            let at = (row * self.stride) as u64 * row_bytes;
            self.model.gpu().copy(from, to, at, count * row_bytes)?;
        }
        Ok(())
    }

    /// Puts all rows to where their texts are.
    ///
    /// # Arguments
    /// `seen`: of each row the tokens of its text, as bit sets; empty where no penalty asks for them.
    pub fn reset(&self, rows: &[RowState], seen: &[u32]) -> Result<()> {
        let gpu = self.model.gpu();
        let tokens: Vec<u32> = rows.iter().map(|row| row.token).collect();
        let document = |(t, row): (usize, &RowState)| (t as u32).wrapping_sub(row.position as u32);
        let documents: Vec<u32> = rows.iter().enumerate().map(document).collect();
        gpu.write(self.buffer(Buffer::BatchTokens)?, 0, bytemuck::cast_slice(&tokens))?;
        gpu.write(self.buffer(Buffer::BatchDocuments)?, 0, bytemuck::cast_slice(&documents))?;
        if !seen.is_empty() {
            gpu.write(self.buffer(Buffer::BatchSeen)?, 0, bytemuck::cast_slice(seen))?;
        }
        let step = Step { reserved: [self.stride as u32, 0], ..Step::of(rows.len()) };
        gpu.write(self.buffer(Buffer::BatchStep)?, 0, bytemuck::bytes_of(&step))
    }

    /// How the rows draw in what is submitted from now on.
    pub fn choose(&self, choices: &[Choice]) -> Result<()> {
        let buffer = self.buffer(Buffer::Choices)?;
        self.model.gpu().write(buffer, 0, bytemuck::cast_slice(choices))
    }

    /// What so many passes of a submit leave.
    pub fn drawn(&self, turns: usize) -> Result<Region> {
        let bytes = (turns * self.rows) as u64 * 8;
        Ok(Region { buffer: self.buffer(Buffer::BatchDrawn)?, offset: 0, bytes })
    }
}

impl Drop for SeveralPass {
    fn drop(&mut self) {
        let bytes = &self.model.sampler_bytes;
        bytes.set(bytes.get() - self.annex.resources.bytes());
    }
}
