//! Weights that are not trained.

use super::{TrainChoices, train_plans, train_plans_of};
use crate::arch::Architecture;
use crate::caps::{Capabilities, Target};
use crate::config::ModelConfig;
use crate::params::Params;
use crate::plan::{Buffer, Plan};
use std::collections::HashSet;

const CONFIG: &str = r#"{"vocab_size":96,"hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,
    "num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,"tie_word_embeddings":true}"#;

/// Bytes that a plan's dispatches bind of a set of buffers, each byte once.
fn bound(plan: &Plan, of: impl Fn(Buffer) -> bool) -> u64 {
    let slices = plan.dispatches.iter().flat_map(|dispatch| &dispatch.slices);
    let distinct: HashSet<_> = slices
        .filter(|slice| of(slice.buffer))
        .map(|slice| (slice.buffer, slice.offset, slice.bytes))
        .collect();
    distinct.iter().map(|(_, _, bytes)| bytes).sum()
}

fn is_moment(buffer: Buffer) -> bool {
    matches!(buffer, Buffer::Moment1(_) | Buffer::Moment2(_))
}

#[test]
fn what_is_not_trained_has_no_gradient_state_or_dispatch() {
    let architecture = Architecture::of(&ModelConfig::from_json(CONFIG).unwrap());
    let params = Params::new(architecture.clone(), 128 << 20).unwrap();
    let caps = Capabilities::floor(Target::Native);
    let choices = TrainChoices { tokens: 64, ..TrainChoices::default() };
    let all = train_plans(&caps, &params, choices).unwrap();
    // Every second matrix, and no norm.
    let trained = |weight: usize| architecture.weights[weight].decay && weight.is_multiple_of(2);
    let some = train_plans_of(&caps, &params, choices, &trained).unwrap();
    let state = params.trained(&trained).unwrap();
    let elements: usize = state.shards.iter().map(|shard| shard.len).sum();
    assert!(elements > 0 && elements < params.shards.iter().map(|shard| shard.len).sum());

    let is_gradient = |buffer| matches!(buffer, Buffer::Gradients(_));
    assert_eq!(bound(&some.optimizer, is_moment), 2 * 4 * elements as u64);
    let names: HashSet<_> = state.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    for (id, weight) in architecture.weights.iter().enumerate() {
        assert_eq!(names.contains(weight.params[0].name.as_str()), trained(id));
    }
    assert!(bound(&some.micro_step, is_gradient) < bound(&all.micro_step, is_gradient));
    let count = |plan: &Plan, what: &str| {
        plan.dispatches.iter().filter(|dispatch| dispatch.label.ends_with(what)).count()
    };
    for what in ["norm weight", " weight"] {
        assert!(count(&some.micro_step, what) < count(&all.micro_step, what), "{what}");
    }
    assert_eq!(count(&some.micro_step, "norm weight"), 0);
    // The loss is that of the whole model.
    assert_eq!(some.evaluate.dispatches.len(), all.evaluate.dispatches.len(),);
}
