//! Buffers that plans bind have the sizes that follow from the config alone.

use super::{configs, floor};
use std::collections::HashSet;
use tinyloom_kernels::kernels::{Access, GRAD_NORM_GROUPS, KvCacheFormat, WeightFormat};
use tinyloom_kernels::lower::{
    DRAW_SLOTS, InferenceOptions, InferencePlans, TrainChoices, TrainPlans, attention_shape,
    cache_bytes, inference_plans, train_plans,
};
use tinyloom_kernels::plan::{
    BatchLayout, Buffer, BufferSizes, METRICS_BYTES, OPTIMIZER_BYTES, PromptLayout, STEP_BYTES,
    buffers,
};
use tinyloom_model::arch::Architecture;
use tinyloom_model::config::ModelConfig;
use tinyloom_model::params::Params;

/// What a trainer holds, from the config alone; without the weights.
fn trainer_sizes(
    config: &ModelConfig,
    layout: &Params,
    plans: &TrainPlans,
    choices: TrainChoices,
) -> BufferSizes {
    let mut sizes = BufferSizes::new();
    for (index, shard) in layout.shards.iter().enumerate() {
        for set in [Buffer::Gradients, Buffer::Moment1, Buffer::Moment2] {
            sizes.insert(set(index), shard.len as u64 * 4);
        }
        if choices.mixed {
            sizes.insert(Buffer::Mirror(index), shard.len as u64 * 2);
        }
    }
    let tokens = choices.tokens as u64;
    let batch = BatchLayout::new(choices.tokens);
    let tables = if plans.tiles.is_some() { 4 * batch.padded as u64 } else { 0 };
    sizes.extend((0..).map(Buffer::Slot).zip(plans.slots.iter().copied()));
    sizes.extend([
        (Buffer::Batch, batch.bytes() + tables),
        (Buffer::Step, STEP_BYTES),
        (Buffer::Losses, tokens * 4),
        (Buffer::Metrics, METRICS_BYTES),
        (Buffer::Optimizer, OPTIMIZER_BYTES),
        (Buffer::Squares, (GRAD_NORM_GROUPS * layout.shards.len()) as u64 * 4),
        (Buffer::RopeTable(0), tokens * config.head_dim as u64 * 4),
    ]);
    sizes
}

/// What inference holds, from the config alone; without the weights.
fn inference_sizes(
    config: &ModelConfig,
    plans: &InferencePlans,
    capacity: usize,
    options: InferenceOptions,
) -> BufferSizes {
    let (chunk, hidden) = (plans.room as u64, config.hidden_size as u64 * 4);
    let (logit_rows, vocabulary) = (plans.logit_rows as u64, config.vocab_size as u64);
    let shape = attention_shape(Architecture::of(config).layers[0].heads().unwrap());
    let cache = cache_bytes(options.kv_cache, &shape, plans.cache_rows);
    let mut sizes: BufferSizes =
        (0..).map(Buffer::Slot).zip(plans.sample.slots.iter().copied()).collect();
    sizes.extend(plans.packed.iter().copied());
    sizes.extend((0..config.num_hidden_layers).map(|layer| (Buffer::Cache(layer), cache)));
    sizes.extend([
        (Buffer::Batch, PromptLayout::new(plans.room).bytes()),
        (Buffer::Step, STEP_BYTES),
        (Buffer::DecodeStep, STEP_BYTES),
        (Buffer::Hidden, chunk * hidden),
        (Buffer::HeadInput, logit_rows * hidden),
        (Buffer::LastHidden, hidden),
        (Buffer::Logits, logit_rows * vocabulary * 4),
        (Buffer::Losses, logit_rows * 4),
        (Buffer::Token, 4),
        (Buffer::Seen, vocabulary.div_ceil(32) * 4),
        (Buffer::Drawn, DRAW_SLOTS as u64 * 8),
        (Buffer::Sampling, 32),
        (Buffer::RopeTable(0), capacity as u64 * config.head_dim as u64 * 4),
    ]);
    sizes
}

fn without_weights(sizes: BufferSizes) -> BufferSizes {
    sizes.into_iter().filter(|(name, _)| !matches!(name, Buffer::Weights(_))).collect()
}

#[test]
fn plans_bind_each_buffer_whole_and_nothing_else() {
    for (config, tokens) in configs() {
        let layout =
            Params::new(Architecture::of(&config), floor().limits.binding_bytes()).unwrap();
        let choices =
            |mixed| TrainChoices { tokens, recompute: mixed, mixed, ..TrainChoices::default() };
        for choices in [false, true].map(choices) {
            let plans = train_plans(&floor(), &layout, choices).unwrap();
            let sizes = buffers(plans.all());
            for (index, shard) in layout.shards.iter().enumerate() {
                assert_eq!(sizes[&Buffer::Weights(index)], shard.len as u64 * 4);
            }
            let expected = trainer_sizes(&config, &layout, &plans, choices);
            assert_eq!(without_weights(sizes), expected);
        }
        for (kv_cache, weights) in [
            (KvCacheFormat::F32, WeightFormat::F32),
            (KvCacheFormat::Int8, WeightFormat::F32),
            (KvCacheFormat::F16, WeightFormat::Int8),
        ] {
            let options = InferenceOptions { kv_cache, weights, ..Default::default() };
            let plans = inference_plans(&floor(), &layout, 512, options).unwrap();
            let expected = inference_sizes(&config, &plans, 512, options);
            assert_eq!(without_weights(buffers(plans.all())), expected);
        }
    }
}

/// What the host reads of inference: losses, and tokens drawn.
#[test]
fn inference_writes_nothing_that_nobody_reads() {
    for (config, _) in configs() {
        let layout =
            Params::new(Architecture::of(&config), floor().limits.binding_bytes()).unwrap();
        let plans = inference_plans(&floor(), &layout, 512, InferenceOptions::default()).unwrap();
        let bound = |wanted: fn(Access) -> bool| {
            let dispatches = plans.all().into_iter().flat_map(|plan| {
                plan.dispatches.iter().map(|dispatch| (dispatch, &plan.kernels[dispatch.kernel]))
            });
            let operands = dispatches.flat_map(|(dispatch, kernel)| {
                if dispatch.operands.is_empty() {
                    return kernel.bindings.iter().copied().zip(dispatch.slices.clone()).collect();
                }
                dispatch.operands.clone()
            });
            operands
                .filter(|(binding, _)| wanted(binding.access))
                .map(|(_, slice)| slice.buffer)
                .collect::<HashSet<_>>()
        };
        let read = bound(|access| access != Access::ReadWrite);
        let mut unread = bound(|access| access == Access::ReadWrite);
        // An activation may be left over: the logsumexp serves the backward pass alone. The bits of
        // tokens seen are read and written by one kernel.
        unread.retain(|buffer| {
            !read.contains(buffer) && !matches!(buffer, Buffer::Slot(_) | Buffer::Seen)
        });
        assert_eq!(unread, HashSet::from([Buffer::Losses, Buffer::Drawn]));
    }
}
