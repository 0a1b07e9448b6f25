//! The pass over batched rows that are decoded, bound to a cache.

use super::batched_plans::BatchedPlanIds;
use crate::caps::{ALIGN, Capabilities};
use crate::error::{Error, Result};
use crate::gpu::{BufferCopy, BufferId, PlanId, Region, Replay, submit_checked};
use crate::lower::{BatchedRows, CacheShape};
use crate::plan::{Buffer, Plan};
use crate::session::cache::allocation::CacheAllocation;
use crate::session::cache::bound_plans::BoundPlans;
use crate::session::cache::key_value_cache::KeyValueCache;
use crate::session::model::Model;
use crate::session::step::{RowChoice, Step};
use crate::session::throughput::{SUBMIT_MILLISECONDS, Throughput, Work};
use std::cell::Cell;
use std::rc::Rc;

/// A row to decode next.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::session) struct RowState {
    pub token: u32,
    /// The token's position in its text.
    pub position: usize,
}

/// The plan, what it reads and writes besides the cache's buffers, and what it costs.
#[derive(Debug)]
pub(in crate::session) struct BatchedPass {
    model: Rc<Model>,
    pub bound: BoundPlans<BatchedPlanIds>,
    rows: usize,
    /// Rows of the cache from one text to the next. 0 where all rows are of one text.
    stride: usize,
    pub work: Work,
    pub largest: Work,
    pub texts: Option<TextsPlan>,
}

/// The plan that reads whole texts, and what it costs.
#[derive(Clone, Copy, Debug)]
pub(in crate::session) struct TextsPlan {
    plan: PlanId,
    /// Most rows of it.
    rows: usize,
    work: Work,
    largest: Work,
}

/// The longest dispatch of a text that is read whole, on the slowest GPU. Drivers end one after two seconds.
const MOST_MILLISECONDS: f64 = 1000.0;

impl TextsPlan {
    fn new(plan: &Plan, id: PlanId) -> Self {
        let (work, largest) = (Work::of(plan), Work::of_largest(plan));
        Self { plan: id, rows: plan.tokens, work, largest }
    }

    /// Most rows of one text, whatever the GPU's pace: its bits would follow that.
    pub fn longest_text(&self, caps: &Capabilities) -> usize {
        self.rows_within(&Throughput::cautious(caps), MOST_MILLISECONDS)
    }

    /// What `rows` rows cost.
    fn of_rows(&self, rows: usize, work: Work) -> Work {
        Work { flops: work.flops * rows as f64 / self.rows as f64, ..work }
    }

    /// Rows to read at a time. No dispatch takes longer than half a submit.
    pub fn most_rows(&self, throughput: &Throughput) -> usize {
        self.rows_within(throughput, SUBMIT_MILLISECONDS / 2.0)
    }

    /// The most rows for which no dispatch takes longer than `milliseconds`.
    fn rows_within(&self, throughput: &Throughput, milliseconds: f64) -> usize {
        let mut rows = self.rows;
        while rows > 1 && throughput.predict(self.of_rows(rows, self.largest)) > milliseconds {
            rows /= 2;
        }
        rows
    }

    /// Rows that it has room for.
    pub const fn rows(&self) -> usize {
        self.rows
    }
}

impl BatchedPass {
    /// A pass for a cache as it is.
    ///
    /// # Arguments
    /// `batch`: the shape of a cache of its own; none to decode `rows` rows of the cache's text.
    pub async fn new(
        model: &Rc<Model>,
        cache: &KeyValueCache,
        batch: Option<CacheShape>,
        rows: usize,
    ) -> Result<Self> {
        let of =
            if batch.is_some() { BatchedRows::OfTexts(rows) } else { BatchedRows::OfOne(rows) };
        let (shape, plans) = cache.with(|on_gpu| {
            let shape = batch.unwrap_or(on_gpu.shape);
            let (caps, form) = (model.gpu().capabilities(), (shape, cache.options, of));
            let plans = model.batched_plans.plans(caps, model.layout(), form, &on_gpu.slots)?;
            Ok((shape, plans))
        })?;
        let bound = BoundPlans::new(&model.weights, cache, shape, &*plans, &|_| Ok(())).await?;
        let stride = if batch.is_some() { plans.cache_rows } else { 0 };
        let (work, largest) = (Work::of(&plans.pass), Work::of_largest(&plans.pass));
        let texts = plans.texts.as_ref().zip(bound.ids.texts);
        let texts = texts.map(|(plan, id)| TextsPlan::new(plan, id));
        Ok(Self { model: Rc::clone(model), bound, rows, stride, work, largest, texts })
    }

    pub fn plan(&self) -> PlanId {
        self.bound.ids.pass
    }

    /// Rows of [`TextsPlan`] that a text takes: its tokens, rounded up to a multiple of [`ALIGN`]. So each text begins
    /// at a tile, and its bits do not depend on the texts before it. None where the cache has no free row after the
    /// text.
    pub fn rows_of(&self, tokens: usize) -> Option<usize> {
        (tokens < self.stride).then_some(tokens.next_multiple_of(ALIGN))
    }

    /// Reads texts, each with its number in the batch, into the cache. Several texts together take no more rows than
    /// [`TextsPlan::most_rows`].
    pub async fn read_whole(&self, texts: &TextsPlan, read: &[(usize, &[u32])]) -> Result<()> {
        let (mut tokens, mut documents, mut places) = (vec![], vec![], vec![]);
        for &(row, text) in read {
            let start = tokens.len();
            let end = start + self.rows_of(text.len()).unwrap_or(text.len());
            tokens.extend_from_slice(text);
            documents.resize(tokens.len(), start as u32);
            // Each padding row is a document of its own. It goes where the text's next token will.
            documents.extend((tokens.len()..end).map(|t| t as u32));
            tokens.resize(end, 0);
            let place = |t: usize| row * self.stride + (t - start).min(self.stride - 1);
            places.extend((start..end).map(|t| (t as u32).wrapping_sub(place(t) as u32)));
        }
        self.model.weights.buffers()?;
        let (gpu, throughput) = (&**self.model.gpu(), &self.model.chunk_throughput);
        let work = texts.of_rows(tokens.len(), texts.work);
        let sent = Cell::new(None);
        let queue = || {
            let [batch, documents_at, step] =
                [Buffer::BatchTokens, Buffer::BatchDocuments, Buffer::BatchStep]
                    .map(|name| self.buffer(name));
            let (documents_at, step) = (documents_at?, step?);
            let offset = texts.rows.next_multiple_of(ALIGN) as u64 * 4;
            gpu.write(batch?, 0, bytemuck::cast_slice(&tokens))?;
            gpu.write(documents_at, 0, bytemuck::cast_slice(&documents))?;
            gpu.write(documents_at, offset, bytemuck::cast_slice(&places))?;
            gpu.write(step, 0, bytemuck::bytes_of(&Step::of(tokens.len())))?;
            let submits = throughput.submits(work, texts.of_rows(tokens.len(), texts.largest));
            sent.set(Some(throughput.sent(gpu, work)));
            // What is read back tells when the texts are read.
            let region = Region { buffer: step, offset: 0, bytes: 4 };
            gpu.submit(&[Replay::new(texts.plan, tokens.len())], submits, Some(region))
        };
        let done = submit_checked(gpu, queue)?;
        let sent = sent.take().ok_or_else(|| Error::internal("nothing was queued"))?;
        throughput.arrival(gpu, sent, done).await.map(drop)
    }

    fn buffer(&self, name: Buffer) -> Result<BufferId> {
        self.bound.resources.get(name)
    }

    /// Copies the keys and values of `tokens` tokens from the text of a cache to that of a row.
    pub fn copy_text(&self, allocation: &CacheAllocation, row: usize, tokens: usize) -> Result<()> {
        let mut copies = vec![];
        for layer in 0..self.model.config().num_hidden_layers {
            if !allocation.resources.has(Buffer::Cache(layer)) {
                continue; // it has no attention
            }
            let buffer = allocation.resources.get(Buffer::Cache(layer))?;
            let to = self.buffer(Buffer::BatchCache(layer))?;
            let all = self.bound.resources.bytes_of(Buffer::BatchCache(layer)).unwrap_or(0);
            let row_bytes = all / (self.rows * self.stride) as u64;
            let count = tokens.min(allocation.cache_rows).min(self.stride) as u64;
            let at = (row * self.stride) as u64 * row_bytes;
            let from = Region { buffer, offset: 0, bytes: count * row_bytes };
            copies.push(BufferCopy { from, to, at });
        }
        self.model.gpu().copy(&copies)
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
        // Without attention and positions no kernel reads them.
        if self.bound.resources.has(Buffer::BatchDocuments) {
            gpu.write(self.buffer(Buffer::BatchDocuments)?, 0, bytemuck::cast_slice(&documents))?;
        }
        if !seen.is_empty() {
            gpu.write(self.buffer(Buffer::BatchSeen)?, 0, bytemuck::cast_slice(seen))?;
        }
        let step = Step { reserved: [self.stride as u32, 0], ..Step::of(rows.len()) };
        gpu.write(self.buffer(Buffer::BatchStep)?, 0, bytemuck::bytes_of(&step))
    }

    /// How the rows draw in what is submitted from now on.
    pub fn choose(&self, choices: &[RowChoice]) -> Result<()> {
        let buffer = self.buffer(Buffer::Choices)?;
        self.model.gpu().write(buffer, 0, bytemuck::cast_slice(choices))
    }

    /// Where `passes` passes of a submit leave their draws.
    pub fn drawn(&self, passes: usize) -> Result<Region> {
        let bytes = (passes * self.rows) as u64 * 8;
        Ok(Region { buffer: self.buffer(Buffer::BatchDrawn)?, offset: 0, bytes })
    }
}
