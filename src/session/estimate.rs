//! What a model will take, computed without a GPU: bytes by kind, operations, predicted times.

use super::cache::allocation::capacity_for;
use super::decode::batch::{batch_shape, check_count};
use super::memory::MemoryBytes;
use super::train::TrainerOptions;
use super::weights::check_format;
use crate::arch::Architecture;
use crate::caps::{Capabilities, GpuClass, Target};
use crate::config::{DropoutRates, LoraConfig, ModelConfig};
use crate::error::{Error, Result};
use crate::kernels::{KvCacheFormat, Steering, WeightFormat};
use crate::lower::{
    BatchedPlans, BatchedRows, Inference, InferenceOptions, InferencePlans, inference_plans,
    train_plans,
};
use crate::params::Params;
use crate::plan::{Plan, buffers};
use serde::{Deserialize, Serialize};

/// What is to be estimated besides the weights.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct EstimateOptions {
    /// How the model holds its matrices.
    pub weights: WeightFormat,
    /// An adapter on the model, which is what is trained and generates then.
    pub adapter: Option<LoraConfig>,
    /// A trainer with these options.
    pub trainer: Option<TrainerOptions>,
    /// A text that is generated.
    pub generate: Option<TextOptions>,
}

/// A text.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TextOptions {
    /// Tokens of the prompt and of what is generated.
    pub tokens: usize,
    /// Texts that are generated together.
    pub sequences: usize,
    pub kv_cache: KvCacheFormat,
    /// None: as the model holds them.
    pub weights: Option<WeightFormat>,
}

impl Default for TextOptions {
    fn default() -> Self {
        Self { tokens: 256, sequences: 1, kv_cache: KvCacheFormat::F32, weights: None }
    }
}

/// A figure for an optimizer step with all its micro-steps full, and one for a decoded token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PerCall {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<f64>,
}

/// What a model will take.
#[derive(Clone, Debug, Serialize)]
pub struct Estimate {
    /// The model's parameters, without a LoRA adapter's.
    pub parameters: u64,
    /// The parameters that a trainer trains: the LoRA adapter's, those of the last layers, or else all.
    pub trainable: u64,
    pub bytes: MemoryBytes,
    /// Floating-point operations.
    pub operations: PerCall,
    /// Only where capabilities were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub milliseconds: Option<PerCall>,
}

/// Estimates a model, on an adapter of these capabilities or at WebGPU's default limits.
///
/// # Errors
/// `invalid-options`; `limit-exceeded` when the model or a plan does not fit the limits.
pub fn estimate(
    config: &ModelConfig,
    options: &EstimateOptions,
    given: Option<&Capabilities>,
) -> Result<Estimate> {
    let floor = Capabilities::floor(Target::Browser);
    let caps = given.unwrap_or(&floor);
    let architecture = Architecture::of(config);
    let parameters = architecture.parameter_count();
    let layout = Params::packed(architecture, caps.limits.shard_bytes(), options.weights)?;
    let mut bytes = MemoryBytes::of_weights(&layout);
    let layout = match &options.adapter {
        Some(lora) => layout.adapted(layout.architecture.adapted(lora)?)?,
        None => layout,
    };
    if options.adapter.is_some() {
        bytes = bytes.plus(MemoryBytes::of_weights(&layout));
    }
    let mut trainable = layout.parameter_count();
    let (mut operations, mut milliseconds) = (PerCall::default(), PerCall::default());
    if let Some(options) = &options.trainer {
        let (trained, step) = training(caps, &layout, options, config.dropout)?;
        trainable = trained;
        bytes = bytes.plus(step.bytes);
        (operations.step, milliseconds.step) = (Some(step.operations), Some(step.milliseconds));
    }
    if let Some(options) = &options.generate {
        let token = generation(caps, &layout, options, config)?;
        bytes = bytes.plus(token.bytes);
        (operations.token, milliseconds.token) = (Some(token.operations), Some(token.milliseconds));
    }
    let milliseconds = given.is_some().then_some(milliseconds);
    Ok(Estimate { parameters, trainable, bytes, operations, milliseconds })
}

/// What one kind of work takes: the bytes of all of it, the rest of a call.
struct CallEstimate {
    bytes: MemoryBytes,
    operations: f64,
    milliseconds: f64,
}

/// An optimizer step, and the parameters that it trains.
fn training(
    caps: &Capabilities,
    layout: &Params,
    options: &TrainerOptions,
    dropout: DropoutRates,
) -> Result<(u64, CallEstimate)> {
    options.validate()?;
    let speed = Speed::of(caps);
    let plans = train_plans(caps, layout, options.choices(dropout, Steering::Nothing))?;
    let bytes = MemoryBytes::of_plans(layout, plans.all());
    let micro_steps = options.gradient_accumulation as f64;
    let (micro_step, optimizer) = (&plans.micro_step, &plans.optimizer);
    let operations = micro_steps * micro_step.flops() + optimizer.flops();
    let waits = micro_steps * speed.readback;
    let work = micro_steps * speed.milliseconds(micro_step) + speed.milliseconds(optimizer);
    let part = CallEstimate { bytes, operations, milliseconds: waits + work };
    Ok((plans.state.parameter_count(), part))
}

/// A token of a text, or of several together.
fn generation(
    caps: &Capabilities,
    layout: &Params,
    options: &TextOptions,
    config: &ModelConfig,
) -> Result<CallEstimate> {
    let &TextOptions { tokens, sequences, kv_cache, weights } = options;
    let (speed, most) = (Speed::of(caps), config.max_position_embeddings);
    if !(1..=most).contains(&tokens) {
        return Err(Error::options(format!(
            "generate.tokens is {tokens}; it must be from 1 to {}, {most}",
            config.spelled("max_position_embeddings")
        )));
    }
    check_count("generate.sequences is", sequences)?;
    let weights = weights.unwrap_or(layout.weights);
    check_format(layout, weights)?;
    let options = InferenceOptions { kv_cache, weights, ..Default::default() };
    let plans = inference_plans(caps, layout, capacity_for(tokens, most), options)?;
    let mut bytes = MemoryBytes::of_plans(layout, plans.all());
    // One readback serves the tokens of a submit, while the next is decoded.
    let [operations, milliseconds] = if sequences == 1 {
        let both = [plans.decode_of(tokens), &plans.sample];
        [both.map(Plan::flops), both.map(|plan| speed.milliseconds(plan))]
            .map(|of| of.iter().sum::<f64>())
    } else {
        let shape = batch_shape(sequences, tokens, most);
        let rows = BatchedRows::OfTexts(sequences);
        let slots = &plans.sample.slots;
        let several = Inference::new(caps, layout, shape, options).batched_plans(rows, slots)?;
        bytes = bytes.plus(beside(&plans, &several));
        let pass = &several.pass;
        [pass.flops(), speed.milliseconds(pass)].map(|of| of / sequences as f64)
    };
    Ok(CallEstimate { bytes, operations, milliseconds })
}

/// What several texts bring: what the plans of one text have not, or too small.
fn beside(plans: &InferencePlans, several: &BatchedPlans) -> MemoryBytes {
    let held = buffers(plans.all());
    let mut own = buffers(several.all());
    own.retain(|name, &mut bytes| held.get(name).is_none_or(|&has| has < bytes));
    MemoryBytes::of_sizes(&own).with_ranges(several.all())
}

/// How fast an adapter is taken to be.
#[derive(Clone, Copy, Debug)]
struct Speed {
    /// Floating-point operations per millisecond that large products reach, in f32 and on subgroup matrices.
    operations: f64,
    matrices: f64,
    /// Bytes of memory traffic per millisecond.
    traffic: f64,
    /// Milliseconds of a dispatch that waits for the one before it.
    dispatch: f64,
    /// Milliseconds until the host has the result of a submit.
    readback: f64,
}

impl Speed {
    /// The first two rows are measured: SwiftShader on two cores, and an NVIDIA H200. WebGPU says
    /// nothing about the speed of others, so theirs is that of a usual one of the class. Bandwidths are those
    /// that kernels reach: about a tenth to a fifth below [`GpuClass::gigabytes`], which are the makers'.
    fn of(caps: &Capabilities) -> Self {
        let [gigaflops, on_matrices, gigabytes, dispatch, readback] = match caps.class() {
            _ if caps.software => [3.0, 3.0, 10.0, 0.2, 1.0],
            GpuClass::LARGE => [54_000.0, 200_000.0, 4_000.0, 0.004, 0.85],
            GpuClass::DESKTOP => [8_000.0, 25_000.0, 400.0, 0.006, 1.0],
            GpuClass::INTEGRATED => [1_500.0, 3_000.0, 90.0, 0.01, 1.0],
            _ => [500.0, 1_000.0, 40.0, 0.015, 1.5],
        };
        Self {
            operations: gigaflops * 1e6,
            matrices: on_matrices * 1e6,
            traffic: gigabytes * 1e6,
            dispatch,
            readback,
        }
    }

    /// Milliseconds of a plan at its largest batch.
    fn milliseconds(self, plan: &Plan) -> f64 {
        let work = plan.dispatches.iter().map(|dispatch| {
            let cost = dispatch.cost;
            let on_matrices = plan.kernels[dispatch.kernel].on_matrices();
            let operations = if on_matrices { self.matrices } else { self.operations };
            self.dispatch + (cost.flops / operations).max(cost.bytes / self.traffic)
        });
        work.sum()
    }
}
