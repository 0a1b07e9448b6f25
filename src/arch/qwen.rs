//! Qwen2 and Qwen2.5 (arXiv:2407.10671, arXiv:2412.15115): Llama with biases of queries, keys and values.
//! Qwen3 (Yang et al., arXiv:2505.09388): Llama with a norm of each head's queries and keys.

use super::Architecture;
use super::describe::Describe;
use super::llama::{Differences, decoder};

pub(super) fn describe_2(model: Describe) -> Architecture {
    decoder(model, Differences { qkv_bias: true, ..Differences::NONE })
}

pub(super) fn describe_3(model: Describe) -> Architecture {
    decoder(model, Differences { head_norms: true, ..Differences::NONE })
}
