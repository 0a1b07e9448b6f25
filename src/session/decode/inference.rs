//! Inference with a model's own weight buffers: chunked prefill into a key-value cache, loss.

use crate::data::IGNORE_INDEX;
use crate::error::{Error, Result};
use crate::gpu::{BufferCopy, PlanId, Region, Replay, queue_checked};
use crate::lower::InferenceOptions;
use crate::plan::{Buffer, PromptLayout};
use crate::session::cache::allocation::CacheAllocation;
use crate::session::cache::caches::PreparedCache;
use crate::session::cache::chunk::Chunk;
use crate::session::cache::key_value_cache::{CacheOwner, KeyValueCache};
use crate::session::model::Model;
use crate::session::progress::Progress;
use crate::session::step::Step;
use std::ops::Range;
use std::pin::Pin;

/// Bytes on their way back.
type ReadBack<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>>> + 'a>>;

/// A text whose logits are wanted from position `from` on, to be compared with `targets`.
#[derive(Clone, Copy)]
pub(super) struct LogitsOf<'a> {
    pub tokens: &'a [u32],
    pub targets: Option<&'a [u32]>,
    pub from: usize,
    /// What computes the state that logits are asked of, instead of all layers.
    pub layers: Option<PlanId>,
}

impl<'a> LogitsOf<'a> {
    /// All of a text and its targets, after all layers.
    pub fn of((tokens, targets): (&'a [u32], &'a [u32])) -> Self {
        Self { tokens, targets: Some(targets), from: 0, layers: None }
    }
}

impl Model {
    /// Refuses what is no text of the model, before memory is asked for it.
    pub(in crate::session) fn check_tokens(&self, tokens: &[u32]) -> Result<()> {
        if tokens.is_empty() {
            return Err(Error::tokens("tokens is empty; give at least one token id"));
        }
        self.check_length(tokens.len())?;
        let vocabulary = self.config().vocab_size;
        match tokens.iter().position(|&t| t as usize >= vocabulary) {
            Some(i) => Err(Error::tokens(format!(
                "tokens[{i}] is {}; token ids must be below vocab_size, {vocabulary}",
                tokens[i]
            ))),
            None => Ok(()),
        }
    }

    /// Computes one chunk at `position`: its tokens into the batch, what `chunk` names, then a readback. As many submits
    /// as keep each short. `None` where the cache no longer holds the text, or holds it for other weights: it has to
    /// begin again.
    pub(in crate::session) async fn run_chunk(
        &self,
        place: (&PreparedCache, CacheOwner),
        position: usize,
        tokens: &[u32],
        chunk: &dyn Fn(&CacheAllocation) -> Result<Chunk>,
    ) -> Result<Option<Vec<u8>>> {
        match self.queue_chunk(place, position, tokens, chunk)? {
            Some(read) => read.await.map(Some),
            None => Ok(None),
        }
    }

    /// [`Self::run_chunk`] up to where it waits: what is queued before the bytes are awaited follows without a gap.
    pub(in crate::session) fn queue_chunk<'a>(
        &'a self,
        place: (&PreparedCache, CacheOwner),
        position: usize,
        tokens: &[u32],
        chunk: &dyn Fn(&CacheAllocation) -> Result<Chunk>,
    ) -> Result<Option<ReadBack<'a>>> {
        let write = |allocation: &CacheAllocation| {
            let batch = allocation.resources.get(Buffer::Batch)?;
            self.gpu().write(batch, 0, bytemuck::cast_slice(tokens))?;
            Ok(allocation.keys(position + tokens.len()))
        };
        let step = Step { position: position as u32, ..Step::of(tokens.len()) };
        let queued = self.queue_rows(place, step, &write, chunk)?;
        if queued.is_some() {
            place.0.writes(position + tokens.len());
        }
        Ok(queued)
    }

    /// Queues the logits of some `rows` of the chunk that is in [`Buffer::Hidden`].
    fn queue_logits<'a>(
        &'a self,
        place: (&PreparedCache, CacheOwner),
        rows: Range<usize>,
        targets: Option<&[u32]>,
        chunk: &dyn Fn(&CacheAllocation) -> Result<Chunk>,
    ) -> Result<Option<ReadBack<'a>>> {
        let write = |allocation: &CacheAllocation| {
            let (gpu, buffer) = (self.gpu(), |name| allocation.resources.get(name));
            if let Some(targets) = targets {
                let offset = PromptLayout::new(allocation.room).targets().offset;
                gpu.write(buffer(Buffer::Batch)?, offset, bytemuck::cast_slice(targets))?;
            }
            let row = self.config().hidden_size as u64 * 4;
            let from = Region {
                buffer: buffer(Buffer::Hidden)?,
                offset: rows.start as u64 * row,
                bytes: rows.len() as u64 * row,
            };
            gpu.copy(&[BufferCopy { from, to: buffer(Buffer::HeadInput)?, at: 0 }])?;
            Ok(0)
        };
        self.queue_rows(place, Step::of(rows.len()), &write, chunk)
    }

    /// Queues a chunk, or rows of one, after what `write` puts in place. `write` also tells how many keys there are.
    fn queue_rows<'a>(
        &'a self,
        (cache, held): (&PreparedCache, CacheOwner),
        step: Step,
        // Both are `dyn`: each generic type would be another copy of this in the module.
        write: &dyn Fn(&CacheAllocation) -> Result<usize>,
        chunk: &dyn Fn(&CacheAllocation) -> Result<Chunk>,
    ) -> Result<Option<ReadBack<'a>>> {
        self.weights.buffers()?;
        if !cache.is_held(&self.weights, held) {
            return Ok(None);
        }
        let (gpu, throughput) = (&**self.gpu(), &self.chunk_throughput);
        let rows = step.tokens as usize;
        let queue = |allocation: &CacheAllocation| {
            let keys = write(allocation)?;
            cache.intervene(self, allocation)?;
            let step_buffer = allocation.resources.get(Buffer::Step)?;
            gpu.write(step_buffer, 0, bytemuck::bytes_of(&step))?;
            let Chunk { plans, costs, read: mut region } = chunk(allocation)?;
            let mut replays: Vec<_> =
                plans.into_iter().map(|plan| Replay { keys, ..Replay::new(plan, rows) }).collect();
            if let Some(first) = replays.first_mut().filter(|_| !gpu.capabilities().software) {
                *first = costs.sent_early(*first);
            }
            let [work, largest] = costs.of_chunk(rows, keys);
            let submits = throughput.submits(work, largest);
            if region.is_none() && throughput.is_brief(work) {
                throughput.unread(work);
                return Ok((None, gpu.submit(&replays, submits, None)?));
            }
            // To know when the chunk is done.
            let step = Region { buffer: step_buffer, offset: 0, bytes: 4 };
            let region = *region.get_or_insert(step);
            let sent = throughput.sent(gpu, work);
            Ok((Some(sent), gpu.submit(&replays, submits, Some(region))?))
        };
        let ((sent, read), accepted) = queue_checked(gpu, || cache.with(queue))?;
        Ok(Some(Box::pin(async move {
            let done = async {
                let read = read.await;
                accepted.await?;
                read
            };
            match sent {
                Some(sent) => throughput.arrival(gpu, sent, done).await,
                None => done.await,
            }
        })))
    }

    /// The next chunk of what is left of a text: the rows that the GPU does at once. `unread` are all tokens that the
    /// cache did not hold at first, or 0 where the plan of an inspection reads the chunk: it is made for chunks of the
    /// usual size.
    pub(in crate::session) fn next_chunk(
        &self,
        cache: &KeyValueCache,
        left: Range<usize>,
        unread: usize,
    ) -> Result<Range<usize>> {
        let (throughput, start) = (&self.chunk_throughput, left.start);
        let rows = |on_gpu: &CacheAllocation| Ok(on_gpu.chunk_rows(throughput, start, unread));
        Ok(start..left.end.min(start + cache.with(rows)?))
    }

    /// Reads what the cache does not hold of a text into it. The caller holds the cache's lock.
    pub(in crate::session) async fn read_text(
        &self,
        cache: &PreparedCache,
        text: &[u32],
    ) -> Result<()> {
        let (mut held, mut done) = self.begin_text(cache, text, usize::MAX).await?;
        let mut unread = text.len() - done;
        while done < text.len() {
            let part = self.next_chunk(cache, done..text.len(), unread)?;
            let chunk =
                |allocation: &CacheAllocation| Ok(Chunk::prefill(allocation, unread, &[], None));
            let read = self.run_chunk((cache, held), done, &text[part.clone()], &chunk);
            if read.await?.is_some() {
                done = part.end;
            } else {
                (held, done) = self.begin_text(cache, text, usize::MAX).await?;
                unread = text.len() - done;
            }
        }
        cache.holds(held, text);
        Ok(())
    }

    /// Mean cross-entropy in nats; targets default to the tokens shifted by one.
    ///
    /// # Errors
    /// As [`Model::inspect`], and `invalid-tokens` when lengths disagree or no target counts.
    pub async fn loss(
        &self,
        tokens: &[u32],
        targets: Option<&[u32]>,
        options: InferenceOptions,
        progress: Progress<'_>,
    ) -> Result<f64> {
        self.check_tokens(tokens)?;
        let shifted: Vec<u32>;
        let targets = match targets {
            Some(targets) => targets,
            None => {
                shifted = tokens[1..].iter().copied().chain([IGNORE_INDEX]).collect();
                &shifted
            }
        };
        self.check_targets(tokens, targets)?;
        progress.report(0, tokens.len(), "loss")?;
        let report = |done| progress.report(done, tokens.len(), "loss");
        let losses = self.row_losses((tokens, targets), options, &report).await?;
        report(tokens.len())?;
        // Chunks follow the GPU's speed: one sum in f64, in order, does not depend on them.
        let counted = losses.iter().zip(targets).filter(|(_, t)| **t != IGNORE_INDEX);
        let sum: f64 = counted.clone().map(|(loss, _)| f64::from(*loss)).sum();
        Ok(sum / counted.count() as f64)
    }

    /// The loss of each position of a text; 0 of an ignored target.
    async fn row_losses(
        &self,
        text: (&[u32], &[u32]),
        options: InferenceOptions,
        report: &dyn Fn(usize) -> Result<()>,
    ) -> Result<Vec<f32>> {
        let cache = self.prepare_inference(text.0.len(), options).await?;
        let chunk = |allocation: &CacheAllocation, rows: &Range<usize>| {
            Chunk::losses(allocation, rows.len())
        };
        let mut losses = vec![];
        let mut take = |rows: Range<usize>, read: &[u8]| {
            losses.truncate(rows.start);
            losses.extend(bytemuck::pod_collect_to_vec::<u8, f32>(read));
        };
        let _lock = cache.lock().await;
        let of = LogitsOf::of(text);
        let held = self.read_rows(&cache, of, &chunk, report, &mut take).await?;
        cache.holds(held, text.0);
        Ok(losses)
    }

    /// Computes a text, and takes what `chunk` leaves of its logits, some rows at a time. Where the text has to begin
    /// again, so do the rows. Gives its use of the cache, whose lock the caller holds.
    pub(super) async fn read_rows(
        &self,
        cache: &PreparedCache,
        text: LogitsOf<'_>,
        chunk: &dyn Fn(&CacheAllocation, &Range<usize>) -> Result<Chunk>,
        report: &dyn Fn(usize) -> Result<()>,
        take: &mut dyn FnMut(Range<usize>, &[u8]),
    ) -> Result<CacheOwner> {
        let LogitsOf { tokens, from, .. } = text;
        let (mut held, mut done) = self.begin_text(cache, tokens, from).await?;
        let mut unread = tokens.len() - done;
        while done < tokens.len() {
            report(done)?;
            let by_cache = if text.layers.is_none() { unread } else { 0 };
            let part = self.next_chunk(cache, done..tokens.len(), by_cache)?;
            if self.read_part((cache, held), text, (&part, unread), chunk, take).await? {
                done = part.end;
            } else {
                (held, done) = self.begin_text(cache, tokens, from).await?;
                unread = tokens.len() - done;
            }
        }
        Ok(held)
    }

    /// A chunk of [`Self::read_rows`]; whether the cache still held the text. While some rows are read, the next ones are
    /// computed.
    pub(super) async fn read_part(
        &self,
        place: (&PreparedCache, CacheOwner),
        text: LogitsOf<'_>,
        (part, unread): (&Range<usize>, usize),
        chunk: &dyn Fn(&CacheAllocation, &Range<usize>) -> Result<Chunk>,
        take: &mut dyn FnMut(Range<usize>, &[u8]),
    ) -> Result<bool> {
        let layers = |allocation: &CacheAllocation| {
            let all = Chunk::prefill(allocation, unread, &[], None);
            Ok(Chunk { plans: text.layers.map_or(all.plans, |own| vec![own]), ..all })
        };
        let tokens = &text.tokens[part.clone()];
        let Some(mut reading) = self.queue_chunk(place, part.start, tokens, &layers)? else {
            return Ok(false);
        };
        let (mut rows, mut next) = (None, text.from.max(part.start));
        while next < part.end {
            let throughput = &self.chunk_throughput;
            let wanted =
                place.0.with(|on_gpu| Ok(on_gpu.next_logits(throughput, &(next..part.end))))?;
            let in_chunk = wanted.start - part.start..wanted.end - part.start;
            let targets = text.targets.map(|targets| &targets[wanted.clone()]);
            let of_rows = |allocation: &CacheAllocation| chunk(allocation, &wanted);
            let Some(queued) = self.queue_logits(place, in_chunk, targets, &of_rows)? else {
                return Ok(false);
            };
            let read = std::mem::replace(&mut reading, queued).await?;
            next = wanted.end;
            if let Some(rows) = rows.replace(wanted) {
                take(rows, &read);
            }
        }
        let read = reading.await?;
        if let Some(rows) = rows {
            take(rows, &read);
        }
        Ok(true)
    }

    fn check_targets(&self, tokens: &[u32], targets: &[u32]) -> Result<()> {
        if targets.len() != tokens.len() {
            return Err(Error::tokens(format!(
                "{} targets for {} tokens; give one target per token",
                targets.len(),
                tokens.len()
            )));
        }
        let vocabulary = self.config().vocab_size;
        if let Some(i) = targets.iter().position(|&t| t != IGNORE_INDEX && t as usize >= vocabulary)
        {
            return Err(Error::tokens(format!(
                "targets[{i}] is {}; a target must be below vocab_size, {vocabulary}, or 0xffffffff to be ignored",
                targets[i]
            )));
        }
        if targets.iter().all(|&t| t == IGNORE_INDEX) {
            return Err(Error::tokens(
                "no target counts: give at least two tokens, or a target that is not 0xffffffff",
            ));
        }
        Ok(())
    }
}
