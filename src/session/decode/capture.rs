//! What a text computes on its way to the logits, in one call and one readback.

use crate::error::{Error, ErrorCode, Result, room};
use crate::gpu::{PlanId, Region};
use crate::graph::Captured;
use crate::lower::{CaptureLayout, Inference, InferenceOptions, capture_columns};
use crate::plan::Buffer;
use crate::session::cache::allocation::CacheAllocation;
use crate::session::cache::bound_plans::BoundPlans;
use crate::session::cache::chunk::Chunk;
use crate::session::cache::costs::ChunkCosts;
use crate::session::cache::key_value_cache::KeyValueCache;
use crate::session::model::Model;
use crate::session::progress::Progress;
use std::collections::BTreeMap;

/// The words of a kind of what is captured.
const fn name(what: Captured) -> &'static str {
    match what {
        Captured::Residual => "residual",
        Captured::AttentionOutput => "attentionOutput",
        Captured::Mlp => "mlp",
        Captured::Query => "query",
        Captured::Key => "key",
        Captured::Value => "value",
        Captured::Attention => "attention",
    }
}

/// Most bytes of a capture that stay on the GPU between calls. They are those of its tensors and of all other buffers of
/// its plan.
pub(in crate::session) const KEPT_BYTES: u64 = 32 << 20;

/// The plan of the last capture, bound to a cache, and what it leaves.
#[derive(Debug)]
pub(in crate::session) struct CapturePlan {
    captured: Vec<(Captured, usize)>,
    layout: CaptureLayout,
    options: InferenceOptions,
    bound: BoundPlans<PlanId>,
    costs: ChunkCosts,
}

impl CapturePlan {
    async fn new(
        model: &Model,
        cache: &KeyValueCache,
        captured: &[(Captured, usize)],
        layout: CaptureLayout,
    ) -> Result<Self> {
        let (caps, options) = (model.gpu().capabilities(), cache.options);
        let (shape, plan) = cache.with(|allocation| {
            let inference = Inference::new(caps, model.layout(), allocation.shape, options);
            let inference = inference.capturing(captured);
            let plan = inference.capture_plan(captured, layout.clone(), &allocation.slots)?;
            Ok((allocation.shape, plan))
        })?;
        let bound = BoundPlans::new(&model.weights, cache, shape, &plan, &|_| Ok(())).await?;
        let (captured, costs) = (captured.to_vec(), ChunkCosts::new(&[&plan]));
        Ok(Self { captured, layout, options, bound, costs })
    }

    fn answers(
        &self,
        cache: &KeyValueCache,
        captured: &[(Captured, usize)],
        layout: &CaptureLayout,
    ) -> bool {
        let alike = self.captured == captured && self.layout == *layout;
        alike && self.options == cache.options && self.bound.belongs_to(cache)
    }
}

impl Model {
    /// Whether a layer has what is to be captured of it. The residual stream has one state more than there are layers.
    fn has_captured(&self, what: Captured, layer: usize) -> bool {
        let layers = &self.layout().architecture.layers;
        match what {
            Captured::Residual => layer <= layers.len(),
            Captured::Mlp => layers.get(layer).is_some_and(|of| of.mlp.is_some()),
            _ => layers.get(layer).is_some_and(|of| of.attention.is_some()),
        }
    }

    /// Each of these kinds with each layer that has it.
    ///
    /// # Errors
    /// `invalid-options` for a kind that no layer has.
    pub fn captured_of(&self, kinds: &[Captured]) -> Result<Vec<(Captured, usize)>> {
        let layers = self.layout().architecture.layers.len();
        let mut all = vec![];
        for &what in kinds {
            let before = all.len();
            let has = (0..=layers).filter(|&layer| self.has_captured(what, layer));
            all.extend(has.map(|layer| (what, layer)));
            if all.len() == before {
                let of = name(what);
                return Err(Error::options(format!(
                    "{of}: no layer of this model has such a block"
                )));
            }
        }
        Ok(all)
    }

    /// The plan of the last capture, if that was alike, or a new one.
    async fn capture_plan(
        &self,
        cache: &KeyValueCache,
        captured: &[(Captured, usize)],
        layout: &CaptureLayout,
    ) -> Result<CapturePlan> {
        // Until the new plan is there the old one keeps the pipelines that both have.
        let last = self.capture_plan.take();
        match last {
            Some(last) if last.answers(cache, captured, layout) => Ok(last),
            last => {
                let made = CapturePlan::new(self, cache, captured, layout.clone()).await;
                drop(last);
                made
            }
        }
    }

    /// Refuses what there is not, and what no buffer can hold.
    pub(super) fn check_captured(
        &self,
        captured: &[(Captured, usize)],
        tokens: usize,
    ) -> Result<CaptureLayout> {
        let architecture = &self.layout().architecture;
        let layers = architecture.layers.len();
        if captured.is_empty() {
            return Err(Error::options(
                "nothing is asked for; give residual, attention or another",
            ));
        }
        for &(what, layer) in captured {
            let most = if what == Captured::Residual { layers } else { layers - 1 };
            if layer > most {
                let of = name(what);
                return Err(Error::options(format!(
                    "{of} of layer {layer}: there are 0 to {most}"
                )));
            }
            if !self.has_captured(what, layer) {
                let of = name(what);
                return Err(Error::options(format!(
                    "{of} of layer {layer}, which has no such block; name other layers"
                )));
            }
        }
        let layout = CaptureLayout::new(architecture, captured, tokens);
        let limits = &self.gpu().capabilities().limits;
        let largest = layout.slices.iter().map(|slice| slice.bytes).max().unwrap_or(0);
        for (limit, have, need) in [
            ("maxStorageBufferBindingSize", limits.binding_bytes(), largest),
            ("maxBufferSize", limits.max_buffer_size, layout.bytes()),
        ] {
            if need <= have {
                continue;
            }
            let mut sums = BTreeMap::new();
            for &(what, layer) in captured {
                let row = capture_columns(architecture, what, layer, tokens);
                *sums.entry((name(what), row)).or_insert(0) += 1;
            }
            let term = |((name, row), count): (&(&str, usize), &usize)| {
                format!("{name} of {count} layers × {tokens} positions × {row} numbers × 4 bytes")
            };
            let terms: Vec<_> = sums.iter().map(term).collect();
            let what = if limit == "maxBufferSize" { "all" } else { "the largest of a layer" };
            return Err(Error::new(
                ErrorCode::LimitExceeded,
                format!(
                    "{}: {what} take {need} bytes, and {limit} is {have}; ask for fewer layers, or a shorter text",
                    terms.join(", ")
                ),
            ));
        }
        Ok(layout)
    }

    /// What layers compute of a text as one document: of each kind and layer `positions × width` numbers, of
    /// [`Captured::Attention`] `heads × positions × positions`.
    ///
    /// # Errors
    /// As [`Model::inspect`]; `limit-exceeded` for what is larger than a buffer may be.
    pub async fn capture(
        &self,
        tokens: &[u32],
        captured: &[(Captured, usize)],
        options: InferenceOptions,
        progress: Progress<'_>,
    ) -> Result<Vec<Vec<f32>>> {
        self.check_tokens(tokens)?;
        let count = tokens.len();
        let layout = self.check_captured(captured, count)?;
        expect_room("what is captured", &layout)?;
        progress.report(0, count, "capture")?;
        // The pass has places for interventions, if only to tell apart what a block adds.
        let none = self.interventions(&[])?;
        let own = options.interventions.is_some();
        let options = if own { options } else { none.over(options) };
        let cache = self.prepare_inference(count, options).await?;
        let _lock = cache.lock().await;
        let plan = self.capture_plan(&cache, captured, &layout).await?;
        let (mut held, mut done) = self.begin_text(&cache, tokens, 0).await?;
        let bytes = loop {
            progress.report(done, count, "capture")?;
            let part = self.next_chunk(&cache, done..count, 0)?;
            let last = part.end == count;
            let chunk = |_: &CacheAllocation| {
                let buffer = plan.bound.resources.get(Buffer::Captured)?;
                let read = last.then_some(Region { buffer, offset: 0, bytes: layout.bytes() });
                Ok(Chunk { plans: vec![plan.bound.ids], costs: plan.costs, read })
            };
            let inputs = &tokens[part.clone()];
            match self.run_chunk((&cache, held), done, inputs, &chunk).await? {
                Some(bytes) if last => break bytes,
                Some(_) => done = part.end,
                None => (held, done) = self.begin_text(&cache, tokens, 0).await?,
            }
        };
        cache.holds(held, tokens);
        // Not where the model has been freed meanwhile.
        if plan.bound.resources.bytes() <= KEPT_BYTES && self.weights.buffers().is_ok() {
            self.capture_plan.replace(Some(plan));
        }
        progress.report(count, count, "capture")?;
        Ok(tensors(&layout, &bytes))
    }
}

/// Refuses more than the host has room for: the bytes that are read back, and the numbers made of them.
pub(super) fn expect_room(what: &str, layout: &CaptureLayout) -> Result<()> {
    let _: Vec<f32> = room(what, layout.bytes() / 4 * 2)?;
    Ok(())
}

/// The numbers of each captured tensor.
pub(super) fn tensors(layout: &CaptureLayout, bytes: &[u8]) -> Vec<Vec<f32>> {
    let of = |at: u64, count: u64| &bytes[at as usize..(at + count) as usize];
    let own = layout.slices.iter();
    own.map(|one| bytemuck::pod_collect_to_vec(of(one.offset, one.bytes))).collect()
}
