//! The key-value cache: its buffers and plans, the text that it holds, its growth.

use super::allocation::{CacheAllocation, LEAST_CAPACITY, capacity_for};
use super::named_plans::NamedPlans;
use crate::error::{Error, ErrorCode, Result};
use crate::gpu::{BufferCopy, Gpu, Region, Replay, create_checked};
use crate::kernels::WeightFormat;
use crate::lower::{InferenceOptions, InferencePlans, inference_plans};
use crate::plan::{Buffer, BufferSizes, Plan, buffers};
use crate::session::decode::interventions::Interventions;
use crate::session::memory::{self, MemoryBytes, Purpose};
use crate::session::resources::Resources;
use crate::session::step::{rope_tables, write_rope_tables};
use crate::session::throughput::Throughput;
use crate::session::weights::Weights;
use futures_util::lock::{Mutex, MutexGuard};
use std::cell::{Cell, RefCell};

/// Keys and values of texts in one form, with matrices read in one form. It grows with its text.
#[derive(Debug)]
pub(in crate::session) struct KeyValueCache {
    pub options: InferenceOptions,
    allocation: RefCell<Option<CacheAllocation>>,
    /// Counts changes of `allocation`, so that a growth notices another one.
    growths: Cell<u64>,
    text: RefCell<CachedText>,
    /// Locked while a text is read into the cache or the cache grows, so that each of several texts comes to its end.
    busy: Mutex<()>,
    /// Counts what is queued that writes keys and values.
    written: Cell<u64>,
    /// The version of the weights that are packed.
    packed: Cell<Option<u64>>,
    /// Whether its rotary angles are those of [long texts](crate::arch::Architecture::is_long).
    long_rope: Cell<bool>,
    /// What its plans read of interventions.
    interventions: RefCell<Option<Interventions>>,
}

/// What the cache holds for the weights as they are.
#[derive(Debug, Default)]
struct CachedText {
    /// Tokens whose keys and values it holds, from the first position on.
    tokens: Vec<u32>,
    /// One past the last position that may have been written.
    reach: usize,
    owner: CacheOwner,
    /// What was changed while it was read.
    interventions: Option<Interventions>,
}

/// Who wrote the cache, and for which weights. Two that are equal are the same use of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::session) struct CacheOwner {
    epoch: u64,
    version: u64,
}

impl KeyValueCache {
    pub fn new(options: InferenceOptions) -> Self {
        Self {
            options,
            allocation: RefCell::default(),
            growths: Cell::default(),
            text: RefCell::default(),
            busy: Mutex::default(),
            written: Cell::default(),
            packed: Cell::default(),
            long_rope: Cell::default(),
            interventions: RefCell::default(),
        }
    }

    pub fn with<T>(&self, use_it: impl FnOnce(&CacheAllocation) -> Result<T>) -> Result<T> {
        let allocation = self.allocation.borrow();
        use_it(allocation.as_ref().ok_or_else(|| Error::internal("inference is not prepared"))?)
    }

    /// Bytes of all buffers.
    pub fn bytes(&self) -> u64 {
        self.allocation.borrow().as_ref().map_or(0, |allocation| allocation.resources.bytes())
    }

    fn capacity(&self) -> usize {
        self.allocation.borrow().as_ref().map_or(0, |allocation| allocation.shape.capacity)
    }

    /// Makes room for texts of `tokens` tokens, rounded up to a power of two, or to a multiple of
    /// [`LEAST_CAPACITY`] where memory is short. The text in the cache stays.
    pub async fn reserve(&self, model: &Weights, tokens: usize) -> Result<()> {
        if self.capacity() >= tokens {
            return Ok(());
        }
        let _lock = self.lock().await;
        while self.capacity() < tokens {
            let most = model.config.max_position_embeddings;
            let wanted = capacity_for(tokens, most);
            let least = tokens.next_multiple_of(LEAST_CAPACITY).min(most);
            match self.grow(model, wanted).await {
                Err(error) if wanted > least && short_of_memory(&error) => {
                    self.grow(model, least).await?
                }
                grown => grown?,
            }
        }
        Ok(())
    }

    /// Replaces what is too small for texts of `capacity` tokens, and binds the plans to it. Nothing
    /// is changed before all of it is there.
    async fn grow(&self, model: &Weights, capacity: usize) -> Result<()> {
        let gpu = &model.gpu.0;
        let weights = model.buffers()?;
        let caps = gpu.capabilities();
        let plans = inference_plans(caps, &model.layout, capacity, self.options)?;
        let before = self.growths.get();
        let old = self.capacity();
        let asked = MemoryBytes::of_sizes(&self.lacking(&plans.all(), &weights));
        let asked = asked.with_ranges(plans.all().iter().copied());
        let purpose = Purpose::Inference { tokens: capacity, sequences: 1 };
        memory::check_memory(&**gpu, purpose, &asked)?;
        if old == 0 {
            gpu.prepare(&plans.all()).await;
        }
        if self.growths.get() != before {
            return Ok(());
        }
        let installed = create_checked(&**gpu, || self.installed(model, &weights, &plans)).await;
        let larger = installed.map_err(|error| memory::explained(error, purpose, &asked))?;
        let positions = old..capacity;
        let tables = rope_tables(&larger.resources, &model.layout.architecture)?;
        write_rope_tables(&**gpu, tables, positions, self.long_rope.get()).await?;
        model.buffers()?;
        if self.growths.get() != before {
            return Ok(());
        }
        let written = self.written.get();
        create_checked(&**gpu, || self.copy_into(model, &larger)).await?;
        model.buffers()?;
        if self.growths.get() != before {
            return Ok(());
        }
        if self.written.get() != written {
            // The copies are older than the text.
            self.text.take();
        }
        self.replace_allocation(larger);
        Ok(())
    }

    /// What these plans bind and this cache has not, or too small.
    pub fn lacking(&self, plans: &[&Plan], weights: &Resources) -> BufferSizes {
        let allocation = self.allocation.borrow();
        let mut sizes = buffers(plans.iter().copied());
        sizes.retain(|&name, &mut bytes| {
            let has = allocation
                .as_ref()
                .and_then(|allocation| allocation.resources.bytes_of(name))
                .unwrap_or(0);
            has < bytes && !weights.has(name)
        });
        sizes
    }

    /// The buffers that are lacking, and all plans bound to them and to those that stay.
    fn installed(
        &self,
        model: &Weights,
        weights: &Resources,
        plans: &InferencePlans,
    ) -> Result<CacheAllocation> {
        let mut resources = Resources::new(&model.gpu.0);
        resources.allocate(&self.lacking(&plans.all(), weights), &[])?;
        let before = self.allocation.borrow();
        let others: Vec<_> =
            before.iter().map(|before| &before.resources).chain([weights]).collect();
        let installed = plans.install(&mut |plan| resources.install(plan, &others))?;
        drop(before);
        Ok(CacheAllocation::new(resources, plans, installed))
    }

    /// Copies keys, values and the table into a larger allocation: what is still being computed, once it is done.
    fn copy_into(&self, model: &Weights, larger: &CacheAllocation) -> Result<()> {
        let allocation = self.allocation.borrow();
        let Some(CacheAllocation { resources: old, .. }) = allocation.as_ref() else {
            return Ok(());
        };
        let layers = (0..model.config.num_hidden_layers).map(Buffer::Cache);
        let mut copies = vec![];
        let tables = (0..model.layout.architecture.ropes.len()).map(Buffer::RopeTable);
        for name in layers.chain(tables) {
            if let (Some(bytes), true) = (old.bytes_of(name), larger.resources.has(name)) {
                let from = Region { buffer: old.get(name)?, offset: 0, bytes };
                copies.push(BufferCopy { from, to: larger.resources.get(name)?, at: 0 });
            }
        }
        model.gpu.0.copy(&copies)
    }

    /// Moves into a larger allocation, which has what was to be copied.
    fn replace_allocation(&self, mut larger: CacheAllocation) {
        let mut allocation = self.allocation.borrow_mut();
        if let Some(old) = allocation.take() {
            larger.resources.inherit(old.resources);
        }
        *allocation = Some(larger);
        self.growths.set(self.growths.get() + 1);
    }

    /// Packs the matrices as they are now, where they are read packed. When it ends, no later version is there.
    pub async fn pack(&self, model: &Weights, throughput: &Throughput) -> Result<()> {
        let packed_already = model.layout.weights != WeightFormat::F32;
        if packed_already || self.options.weights == WeightFormat::F32 {
            return Ok(());
        }
        loop {
            let version = Some(model.version());
            if self.packed.get() == version {
                return Ok(());
            }
            let packing = self.with(|cache| {
                let submits = throughput.submits(cache.costs.pack, cache.costs.largest_of_pack);
                model.gpu.0.submit(&[Replay::new(cache.plans.pack, 1)], submits, None)
            })?;
            packing.await?;
            self.packed.set(version);
        }
    }

    /// Whether its rotary angles are those of a text of `tokens` tokens.
    pub fn has_rope_for(&self, model: &Weights, tokens: usize) -> bool {
        self.long_rope.get() == model.layout.architecture.is_long(tokens)
    }

    /// Gives the cache the rotary angles of a text of `tokens` tokens. What it held with others is void. The caller
    /// holds the [lock](Self::lock).
    pub async fn set_rope_for(&self, model: &Weights, tokens: usize) -> Result<()> {
        if self.has_rope_for(model, tokens) {
            return Ok(());
        }
        self.text.take();
        let architecture = &model.layout.architecture;
        let long = architecture.is_long(tokens);
        self.long_rope.set(long);
        let tables = self.with(|on_gpu| rope_tables(&on_gpu.resources, architecture))?;
        write_rope_tables(&*model.gpu.0, tables, 0..self.capacity(), long).await
    }

    /// Waits until no text is being read into the cache, and it does not grow. Neither begins before the guard is dropped.
    pub async fn lock(&self) -> MutexGuard<'_, ()> {
        self.busy.lock().await
    }

    /// Writes interventions where the plans read them, unless they are there.
    pub fn intervene(
        &self,
        gpu: &dyn Gpu,
        allocation: &CacheAllocation,
        own: &Interventions,
    ) -> Result<()> {
        if self.interventions.borrow().as_ref() == Some(own) {
            return Ok(());
        }
        // Not before all of it is written.
        self.interventions.take();
        let buffer = allocation.resources.get(Buffer::Interventions)?;
        let numbers = own.numbers();
        gpu.write(buffer, 0, bytemuck::cast_slice(&numbers.entries))?;
        if !numbers.vectors.is_empty() {
            gpu.write(buffer, numbers.vectors_at, bytemuck::cast_slice(&numbers.vectors))?;
        }
        self.interventions.replace(Some(own.clone()));
        Ok(())
    }

    /// Tokens of a text whose keys and values the cache holds already with these interventions or without any, short of
    /// the last: its logits are wanted, and at most `most`.
    pub fn reusable(
        &self,
        model: &Weights,
        interventions: &Option<Interventions>,
        text: &[u32],
        most: usize,
    ) -> Result<usize> {
        let held = self.text.borrow();
        if held.owner.version != model.version() || held.interventions != *interventions {
            return Ok(0);
        }
        let same = text.iter().zip(&held.tokens).take_while(|(a, b)| a == b).count();
        let start = same.min(text.len().saturating_sub(1)).min(most);
        // Later positions have taken the rows of the first ones where the cache is a ring. What a
        // window reaches back to must still be there.
        let lost = self.with(|cache| Ok(held.reach.saturating_sub(cache.cache_rows)))?;
        let window = model.layout.architecture.window().unwrap_or(usize::MAX);
        let whole = lost == 0 || start + 1 >= lost.saturating_add(window);
        Ok(if whole { start } else { 0 })
    }

    /// Whether nobody has used the cache since, and the weights are the same.
    pub fn is_held(&self, model: &Weights, by: CacheOwner) -> bool {
        by == self.text.borrow().owner && by.version == model.version()
    }

    /// Gives the cache to a text of `tokens` tokens of which it holds the first `start`.
    ///
    /// # Arguments
    /// `by`: a number that no earlier use of a cache of these weights had, and what is changed while the text is read.
    pub fn begin_text(
        &self,
        model: &Weights,
        (epoch, interventions): (u64, Option<Interventions>),
        start: usize,
        tokens: usize,
    ) -> CacheOwner {
        let mut text = self.text.borrow_mut();
        let reach = if start > 0 { text.reach } else { 0 };
        text.tokens.clear();
        text.reach = reach.max(tokens);
        text.interventions = interventions;
        text.owner = CacheOwner { epoch, version: model.version() };
        text.owner
    }

    /// Notes that work has been queued that writes positions below `reach`.
    pub fn writes(&self, reach: usize) {
        self.written.set(self.written.get() + 1);
        let mut text = self.text.borrow_mut();
        text.reach = text.reach.max(reach);
    }

    /// Notes the text that the cache holds, unless it has been used otherwise meanwhile.
    pub fn holds(&self, by: CacheOwner, tokens: &[u32]) {
        let mut text = self.text.borrow_mut();
        if text.owner == by {
            text.tokens.clear();
            text.tokens.extend_from_slice(tokens);
        }
    }
}

/// Whether less of it might have been there.
fn short_of_memory(error: &Error) -> bool {
    matches!(error.code, ErrorCode::OutOfMemory | ErrorCode::LimitExceeded)
}
