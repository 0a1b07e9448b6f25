//! What a call will allocate, by kind, from plans alone; held against the adapter's memory before
//! anything is allocated.

use crate::caps::Capabilities;
use crate::error::{Error, ErrorCode, Result};
use crate::gpu::Gpu;
use crate::kernels::WeightFormat;
use crate::params::Params;
use crate::plan::{Buffer, BufferSizes, Plan, allocated_bytes, buffers};
use serde::Serialize;
use std::cmp::Reverse;
use std::fmt;

/// Bytes of GPU memory by what they are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryBytes {
    /// Weights, and copies of them in other formats.
    pub weights: u64,
    pub gradients: u64,
    /// The optimizer's moments.
    pub state: u64,
    /// Activations, batches, logits, tables, uniforms.
    pub activations: u64,
    /// Keys and values.
    pub cache: u64,
}

impl MemoryBytes {
    /// The weights of a layout.
    pub fn of_weights(layout: &Params) -> Self {
        let shards = layout.own_shards().map(|(_, shard)| shard.len as u64 * 4);
        let packed = layout.own_packed().map(|(_, bytes)| bytes);
        let weights = shards.chain(packed).map(allocated_bytes).sum();
        Self { weights, ..Self::default() }
    }

    /// What plans need besides the weights of the layout that they are for.
    pub fn of_plans<'a>(
        layout: &Params,
        plans: impl IntoIterator<Item = &'a Plan> + Clone,
    ) -> Self {
        let mut sizes = buffers(plans.clone());
        let held = layout.weights != WeightFormat::F32;
        sizes.retain(|name, _| match name {
            Buffer::Weights(_) => false,
            Buffer::Packed(_) => !held,
            _ => true,
        });
        Self::of_sizes(&sizes).with_ranges(plans)
    }

    /// Buffers to be made.
    pub fn of_sizes(sizes: &BufferSizes) -> Self {
        let mut sum = Self::default();
        for (&name, &bytes) in sizes.iter() {
            let kind = match name {
                Buffer::Weights(_) | Buffer::Mirror(_) | Buffer::Packed(_) => &mut sum.weights,
                Buffer::Gradients(_) => &mut sum.gradients,
                Buffer::Moment1(_)
                | Buffer::Moment2(_)
                | Buffer::Scales(_)
                | Buffer::Average(_)
                | Buffer::Optimizer => &mut sum.state,
                Buffer::Cache(_) | Buffer::BatchCache(_) => &mut sum.cache,
                _ => &mut sum.activations,
            };
            *kind += allocated_bytes(bytes);
        }
        sum
    }

    /// Also the uniforms that plans bring with them.
    pub fn with_ranges<'a>(mut self, plans: impl IntoIterator<Item = &'a Plan>) -> Self {
        self.activations += plans.into_iter().map(Plan::ranges_bytes).sum::<u64>();
        self
    }

    /// One buffer of numbers that are no model's.
    pub fn of_tensor(bytes: u64) -> Self {
        Self { activations: allocated_bytes(bytes), ..Self::default() }
    }

    pub fn total(&self) -> u64 {
        self.kinds().iter().map(|(_, bytes)| bytes).sum()
    }

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            weights: self.weights + other.weights,
            gradients: self.gradients + other.gradients,
            state: self.state + other.state,
            activations: self.activations + other.activations,
            cache: self.cache + other.cache,
        }
    }

    fn kinds(&self) -> [(&'static str, u64); 5] {
        [
            ("weights", self.weights),
            ("gradients", self.gradients),
            ("optimizer state", self.state),
            ("activations", self.activations),
            ("key-value cache", self.cache),
        ]
    }
}

/// The sum, and each kind that is part of it.
impl fmt::Display for MemoryBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<_> = self
            .kinds()
            .iter()
            .filter(|(_, bytes)| *bytes > 0)
            .map(|(kind, bytes)| format!("{kind} {}", size(*bytes)))
            .collect();
        write!(f, "{} ({})", size(self.total()), kinds.join(", "))
    }
}

fn size(bytes: u64) -> String {
    let bytes = bytes as f64;
    match bytes {
        1e9.. => format!("{:.1} GB", bytes / 1e9),
        1e7.. => format!("{:.0} MB", bytes / 1e6),
        _ => format!("{:.2} MB", bytes / 1e6),
    }
}

/// What memory is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Model,
    Adapter,
    Trainer,
    /// The plans for `sequences` texts of `tokens` tokens.
    Inference {
        tokens: usize,
        sequences: usize,
    },
    /// A copy of weights and moments, for as long as it takes to read it back.
    Snapshot,
    Tensor,
    /// An operation on tensors.
    Operation,
}

impl Purpose {
    fn name(self) -> String {
        match self {
            Self::Model => "the model".into(),
            Self::Adapter => "the adapter".into(),
            Self::Trainer => "the trainer".into(),
            Self::Inference { tokens, sequences: 1 } => format!("inference over {tokens} tokens"),
            Self::Inference { tokens, sequences } => {
                format!("inference over {sequences} sequences of up to {tokens} tokens")
            }
            Self::Snapshot => "the snapshot".into(),
            Self::Tensor => "the tensor".into(),
            Self::Operation => "the operation".into(),
        }
    }

    /// The settings that shrink what is asked for, those of its largest kind first.
    fn advice(self, asked: &MemoryBytes) -> String {
        const CONFIG: &str = "a smaller hidden_size, num_hidden_layers or vocab_size";
        const DEFAULTED: &str = "a smaller hidden_size, num_hidden_layers or vocab_size (fields left out have \
                                 transformers' defaults)";
        let mut settings = match self {
            Self::Model => vec![(asked.weights, DEFAULTED)],
            Self::Adapter => vec![(asked.weights, "a smaller rank or fewer targets")],
            Self::Trainer => vec![
                (asked.activations, "a smaller tokensPerStep, or recompute: true"),
                (asked.gradients + asked.state + asked.weights, CONFIG),
            ],
            Self::Inference { sequences, .. } => vec![
                (
                    asked.cache,
                    if sequences > 1 {
                        "fewer or shorter prompts, a smaller maxTokens, or kvCache: \"int8\""
                    } else {
                        "a shorter prompt, a smaller maxTokens, or kvCache: \"int8\""
                    },
                ),
                (asked.weights, "weights: \"int8\" or \"int4\""),
                (asked.activations, "a smaller vocab_size or hidden_size"),
            ],
            Self::Snapshot => vec![(asked.total(), CONFIG)],
            Self::Tensor => vec![(asked.activations, "a smaller shape")],
            Self::Operation => vec![(asked.activations, "smaller tensors")],
        };
        settings.retain(|(bytes, _)| *bytes > asked.total() / 10);
        settings.sort_by_key(|&(bytes, _)| Reverse(bytes));
        let used: Vec<_> = settings.into_iter().map(|(_, text)| text).collect();
        format!("use {}, or free other models, trainers and tensors", used.join("; "))
    }
}

/// Refuses what does not fit the adapter's memory together with all that the device holds. Where the
/// memory is not known, the GPU itself has to refuse.
///
/// # Errors
/// `out-of-memory` with the bytes of each kind.
pub(super) fn check_memory(gpu: &dyn Gpu, purpose: Purpose, asked: &MemoryBytes) -> Result<()> {
    fits(gpu.capabilities(), gpu.counters().gpu_bytes, purpose, asked)
}

fn fits(caps: &Capabilities, held: u64, purpose: Purpose, asked: &MemoryBytes) -> Result<()> {
    let Some(memory) = caps.memory_bytes() else { return Ok(()) };
    if held.saturating_add(asked.total()) <= memory {
        return Ok(());
    }
    let by = match caps.memory_budget {
        Some(_) => "memoryBudget allows",
        None => "an adapter on the CPU may take",
    };
    let message = format!(
        "{} takes {asked}, this runtime holds {}, and {by} {}: {}",
        purpose.name(),
        size(held),
        size(memory),
        purpose.advice(asked)
    );
    Err(Error::new(ErrorCode::OutOfMemory, message))
}

/// The GPU's own refusal with the bytes that were asked for.
pub(super) fn explained(error: Error, purpose: Purpose, asked: &MemoryBytes) -> Error {
    if error.code != ErrorCode::OutOfMemory {
        return error;
    }
    let (name, advice) = (purpose.name(), purpose.advice(asked));
    let message = error.message.trim_end_matches('.');
    Error::new(error.code, format!("{message}: {name} takes {asked}; {advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Architecture;
    use crate::caps::Target;
    use crate::config::ModelConfig;
    use crate::lower::{TrainChoices, train_plans};

    fn trainer(tokens: usize) -> (Capabilities, MemoryBytes) {
        let caps = Capabilities { software: true, ..Capabilities::floor(Target::Native) };
        let config = ModelConfig::from_json(
            r#"{"vocab_size":256,"hidden_size":512,"intermediate_size":1024,
                "num_hidden_layers":40,"num_attention_heads":8,"num_key_value_heads":8}"#,
        )
        .unwrap();
        let architecture = Architecture::of(&config);
        let layout = Params::new(architecture, caps.limits.binding_bytes()).unwrap();
        let choices = TrainChoices { tokens, ..TrainChoices::default() };
        let plans = train_plans(&caps, &layout, choices).unwrap();
        (caps, MemoryBytes::of_plans(&layout, plans.all()))
    }

    #[test]
    fn a_trainer_of_many_tokens_is_refused_with_the_bytes_of_each_kind() {
        let (caps, small) = trainer(64);
        fits(&caps, 0, Purpose::Trainer, &small).unwrap();
        let (_, large) = trainer(8192);
        assert_eq!((large.gradients, large.state), (small.gradients, small.state));
        let error = fits(&caps, 0, Purpose::Trainer, &large).unwrap_err();
        assert_eq!(error.code, ErrorCode::OutOfMemory);
        for word in [
            "the trainer takes",
            "gradients",
            "optimizer state",
            "activations",
            "use a smaller tokensPerStep",
        ] {
            assert!(error.message.contains(word), "{error}");
        }
        // On a GPU nobody knows how much there is.
        fits(&Capabilities { software: false, ..caps }, 0, Purpose::Trainer, &large).unwrap();
    }

    #[test]
    fn a_budget_holds_on_every_adapter_and_stands_in_for_the_guess_of_a_cpu() {
        let (caps, small) = trainer(64);
        let budget = small.total();
        for software in [false, true] {
            let caps = Capabilities { software, memory_budget: Some(budget), ..caps.clone() };
            fits(&caps, 0, Purpose::Trainer, &small).unwrap();
            let error = fits(&caps, 1, Purpose::Trainer, &small).unwrap_err();
            assert_eq!(error.code, ErrorCode::OutOfMemory);
            assert!(error.message.contains("memoryBudget allows"), "{error}");
        }
        let (_, large) = trainer(8192);
        let caps = Capabilities { memory_budget: Some(1 << 50), ..caps };
        fits(&caps, 0, Purpose::Trainer, &large).unwrap();
    }

    #[test]
    fn what_the_runtime_holds_counts() {
        let (caps, small) = trainer(64);
        let memory = caps.memory_bytes().unwrap();
        fits(&caps, memory - small.total(), Purpose::Trainer, &small).unwrap();
        let held = memory - small.total() + 1;
        let error = fits(&caps, held, Purpose::Trainer, &small).unwrap_err();
        assert!(error.message.contains(&format!("holds {}", size(held))), "{error}");
    }

    #[test]
    fn the_gpus_own_refusal_names_bytes_too() {
        let asked = MemoryBytes::of_tensor(5_000_000);
        let refused = |code| explained(Error::new(code, "no"), Purpose::Tensor, &asked).message;
        assert!(refused(ErrorCode::OutOfMemory).contains("the tensor takes 5.00 MB"));
        assert_eq!(refused(ErrorCode::DeviceLost), "no");
    }
}
