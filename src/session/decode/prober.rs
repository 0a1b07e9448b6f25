//! The plan that answers who looks into a model, bound to a cache.

use crate::error::Result;
use crate::gpu::{Gpu, Region};
use crate::lower::{InferenceOptions, Probe, probe_plan};
use crate::plan::Buffer;
use crate::session::cache::annex::Annex;
use crate::session::cache::chunk::Chunk;
use crate::session::cache::costs::ChunkCosts;
use crate::session::cache::key_value_cache::{KeyValueCache, Room};
use crate::session::weights::Weights;
use std::ops::Range;
use std::rc::Rc;

/// The plan of a probe, bound to a cache's room.
#[derive(Debug)]
pub(in crate::session) struct Prober {
    probe: Probe,
    options: InferenceOptions,
    annex: Annex,
    costs: ChunkCosts,
    /// Elements of a hidden state.
    hidden: usize,
}

impl Prober {
    pub async fn new(model: &Weights, cache: &KeyValueCache, probe: Probe) -> Result<Self> {
        let (caps, options) = (model.gpu.0.capabilities(), cache.options);
        let make = |shape, slots: &[u64]| {
            let plan = probe_plan(caps, &model.layout, shape, options, slots, probe)?;
            Ok(Rc::new(vec![plan]))
        };
        let (annex, plans) = Annex::new(model, cache, None, &make, &|_| Ok(())).await?;
        let hidden = model.config.hidden_size;
        Ok(Self { probe, options, annex, costs: ChunkCosts::new(&[&plans[0]]), hidden })
    }

    /// Whether it answers the probe from the cache as it is.
    pub fn answers(&self, cache: &KeyValueCache, probe: Probe) -> bool {
        let fits = || cache.with(|room| Ok(self.annex.fits(room))) == Ok(true);
        self.probe == probe && self.options == cache.options && fits()
    }

    /// Bytes that it holds besides the cache's.
    pub fn bytes(&self) -> u64 {
        self.annex.resources.bytes()
    }

    /// As many tokens of a chunk as its results have room for.
    pub fn part(&self, part: Range<usize>) -> Range<usize> {
        let Some(bytes) = self.annex.resources.bytes_of(Buffer::Probabilities) else { return part };
        let (start, mut rows) = (part.start, part.len());
        while rows > 1 && (rows * (start + rows)) as u64 * 4 > bytes {
            rows = rows.div_ceil(2);
        }
        start..start + rows
    }

    /// Numbers of each row that a chunk of these tokens leaves.
    pub fn columns(&self, part: &Range<usize>) -> usize {
        match self.probe {
            Probe::HiddenState(_) => self.hidden,
            Probe::Attention(_) => part.end,
        }
    }

    /// The work on a chunk of these tokens, and the numbers of each row that it leaves. Attention's are of
    /// this head and end with the chunk's last key.
    pub fn chunk(
        &self,
        gpu: &dyn Gpu,
        room: &Room,
        part: &Range<usize>,
        head: usize,
    ) -> Result<Chunk> {
        let own = |name| self.annex.resources.get(name);
        let buffer = match self.probe {
            Probe::HiddenState(_) => room.resources.get(Buffer::Hidden)?,
            Probe::Attention(_) => {
                let head = [head as u32, 0, 0, 0];
                gpu.write(own(Buffer::Probe)?, 0, bytemuck::cast_slice(&head))?;
                own(Buffer::Probabilities)?
            }
        };
        let bytes = (part.len() * self.columns(part)) as u64 * 4;
        let read = Region { buffer, offset: 0, bytes };
        Ok(Chunk { plans: self.annex.plans.clone(), costs: self.costs, read: Some(read) })
    }
}
