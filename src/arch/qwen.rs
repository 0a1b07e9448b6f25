//! Qwen3 (Yang et al., arXiv:2505.09388): Llama with a norm of each head's queries and keys.

use super::describe::Describe;
use super::{Architecture, llama};

pub(super) fn describe(model: Describe) -> Architecture {
    llama::decoder(model, |model, layer| {
        Some(model.head_norms(&format!("model.layers.{layer}.self_attn"), ["q_norm", "k_norm"]))
    })
}
