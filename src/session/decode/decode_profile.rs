//! Times of the dispatches of a decoded token and of a chunk of a prompt, for the benchmark.

use crate::error::Result;
use crate::gpu::{Replay, create_checked};
use crate::lower::{InferenceOptions, inference_plans};
use crate::plan::{Buffer, PlanRow};
use crate::session::cache::allocation::CacheAllocation;
use crate::session::model::Model;
use crate::session::step::{Sampling, Step};

impl Model {
    /// The kernels of one token decoded after `context` others, with GPU times where the device has timestamps. What
    /// the cache holds does not matter.
    ///
    /// # Errors
    /// As [`Model::logits`].
    pub async fn profile_decode(&self, context: usize) -> Result<Vec<PlanRow>> {
        let options = InferenceOptions::default();
        let cache = self.prepare_inference(context + 1, options).await?;
        let _lock = cache.lock().await;
        cache.begin_text(&self.weights, (self.next_epoch(), None), 0, context + 1);
        let gpu = self.gpu();
        let write = |allocation: &CacheAllocation| {
            let buffer = |name| allocation.resources.get(name);
            let step = Step { position: context as u32, ..Step::of(1) };
            gpu.write(buffer(Buffer::DecodeStep)?, 0, bytemuck::bytes_of(&step))?;
            let sampling = Sampling {
                temperature: 1.0,
                top_p: 1.0,
                repetition_penalty: 1.0,
                ..Sampling::default()
            };
            gpu.write(buffer(Buffer::Sampling)?, 0, bytemuck::bytes_of(&sampling))?;
            Ok((allocation.decode(context + 1), allocation.plans.sample, allocation.shape))
        };
        let (decode, sample, shape) = create_checked(&**gpu, || cache.with(write)).await?;
        let caps = gpu.capabilities();
        let plans = inference_plans(caps, self.layout(), shape, options)?;
        let most = caps.limits.max_compute_workgroups_per_dimension;
        let mut rows = plans.decode_of(context + 1).rows(most)?;
        rows.extend(plans.sample.rows(most)?);
        self.timed(rows, &[decode, sample].map(|plan| Replay::new(plan, 1))).await
    }

    /// The kernels of the last chunk of a prompt of `tokens` tokens, with GPU times as above.
    ///
    /// # Errors
    /// As [`Model::logits`].
    pub async fn profile_prompt(
        &self,
        tokens: usize,
        options: InferenceOptions,
    ) -> Result<Vec<PlanRow>> {
        let cache = self.prepare_inference(tokens, options).await?;
        let _lock = cache.lock().await;
        cache.begin_text(&self.weights, (self.next_epoch(), None), 0, tokens);
        let gpu = self.gpu();
        let write = |allocation: &CacheAllocation| {
            let prefill = allocation.prefill(tokens);
            let rows = (tokens - 1) % prefill.rows + 1;
            let step = Step { position: (tokens - rows) as u32, ..Step::of(rows) };
            gpu.write(allocation.resources.get(Buffer::Step)?, 0, bytemuck::bytes_of(&step))?;
            let keys = allocation.keys(tokens);
            Ok((Replay { keys, ..Replay::new(prefill.plan, rows) }, allocation.shape))
        };
        let (replay, shape) = create_checked(&**gpu, || cache.with(write)).await?;
        let caps = gpu.capabilities();
        let plans = inference_plans(caps, self.layout(), shape, options)?;
        let rows =
            plans.prefill_of(tokens).rows(caps.limits.max_compute_workgroups_per_dimension)?;
        self.timed(rows, &[replay]).await
    }

    /// These rows of plans with the times of their dispatches.
    async fn timed(&self, mut rows: Vec<PlanRow>, replays: &[Replay]) -> Result<Vec<PlanRow>> {
        let mut times = vec![];
        // The first time a kernel runs it is slower than ever after.
        for _ in 0..3 {
            times.clear();
            for replay in replays {
                let measured = self.gpu().profile(*replay)?.await?;
                times.extend(measured.into_iter().flatten());
            }
        }
        for (row, time) in rows.iter_mut().zip(times) {
            row.gpu_microseconds = Some(time);
        }
        Ok(rows)
    }
}
