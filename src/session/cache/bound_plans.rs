//! Plans that share a cache's buffers and own some of their own.

use super::allocation::AllocationId;
use super::key_value_cache::KeyValueCache;
use super::named_plans::NamedPlans;
use crate::error::Result;
use crate::gpu::create_checked;
use crate::lower::CacheShape;
use crate::session::memory::{self, MemoryBytes, Purpose};
use crate::session::resources::Resources;
use crate::session::weights::Weights;
use std::rc::Rc;

/// Plans bound to one allocation of a cache. Their bytes count in [`Weights::bound_bytes`].
#[derive(Debug)]
pub(in crate::session) struct BoundPlans<P> {
    /// What the plans read and write besides the cache's buffers.
    pub resources: Resources,
    pub ids: P,
    pub weights: Rc<Weights>,
    allocation: AllocationId,
}

impl<P> BoundPlans<P> {
    /// Binds plans to what a cache has now, and allocates what it has not.
    ///
    /// # Arguments
    /// `shape`: of the cache that the plans were made for, for messages.
    /// `prepare`: writes what the new buffers hold from the beginning.
    ///
    /// # Errors
    /// `limit-exceeded`, `out-of-memory`, `freed`, `device-lost`.
    pub async fn new<N: NamedPlans<Ids = P>>(
        weights: &Rc<Weights>,
        cache: &KeyValueCache,
        shape: CacheShape,
        plans: &N,
        prepare: &dyn Fn(&Resources) -> Result<()>,
    ) -> Result<Self> {
        let (gpu, model) = (&weights.gpu.0, weights.buffers()?);
        let all = plans.all();
        let sizes = cache.lacking(&all, &model);
        let asked = MemoryBytes::of_sizes(&sizes).with_ranges(all);
        let purpose = Purpose::Inference { tokens: shape.capacity, sequences: shape.sequences };
        memory::check_memory(&**gpu, purpose, &asked)?;
        let bind = || {
            let mut resources = Resources::new(gpu);
            resources.allocate(&sizes, &[])?;
            let (ids, allocation) = cache.with(|cache| {
                let others = [&cache.resources, &*model];
                let ids = plans.install(&mut |plan| resources.install(plan, &others))?;
                Ok((ids, cache.id()))
            })?;
            prepare(&resources)?;
            Ok((resources, ids, allocation))
        };
        let bound = create_checked(&**gpu, bind).await;
        let (resources, ids, allocation) =
            bound.map_err(|error| memory::explained(error, purpose, &asked))?;
        let bytes = &weights.bound_bytes;
        bytes.set(bytes.get() + resources.bytes());
        Ok(Self { resources, ids, weights: Rc::clone(weights), allocation })
    }

    /// Whether the plans are bound to the buffers that the cache has now.
    pub fn belongs_to(&self, cache: &KeyValueCache) -> bool {
        cache.with(|cache| Ok(cache.id() == self.allocation)) == Ok(true)
    }
}

impl<P> Drop for BoundPlans<P> {
    fn drop(&mut self) {
        let bytes = &self.weights.bound_bytes;
        bytes.set(bytes.get() - self.resources.bytes());
    }
}
