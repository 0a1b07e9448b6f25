//! Qwen2 and Qwen2.5 (arXiv:2407.10671, arXiv:2412.15115): Llama with biases of queries, keys and values.
//! Qwen3 (Yang et al., arXiv:2505.09388): Llama with a norm of each head's queries and keys.

use super::Family;
use super::gguf::{DECODER, Gguf, HEAD_NORMS, SILU, UNCAPPED};
use super::llama::{Differences, HeadsNormed, LLAMA, decoder};
use crate::config::slots::*;
use crate::config::{Missing, NO_BIASES, OFF, Refusal};

pub(super) static QWEN2: Family = Family {
    names: ["qwen2", "Qwen2ForCausalLM"],
    like: Some(&LLAMA),
    fields: &[
        POSITIONS.or(Missing::Size(32_768)),
        KEY_VALUE_HEADS.or(Missing::Size(32)),
        INTERMEDIATE_SIZE.or(Missing::Size(22_016)),
        VOCAB_SIZE.or(Missing::Size(151_936)),
    ],
    refused: &[NO_WINDOWS[0], NO_WINDOWS[1], NO_BIASES[0], NO_BIASES[1]],
    gguf: Some(Gguf {
        architecture: "qwen2",
        modules: &[DECODER],
        changes: &[],
        expected: &[SILU, UNCAPPED],
    }),
    describe: |model| decoder(model, Differences { qkv_bias: true, ..Differences::NONE }),
};

pub(super) static QWEN3: Family = Family {
    names: ["qwen3", "Qwen3ForCausalLM"],
    like: Some(&QWEN2),
    fields: &[HEAD_DIM.or(Missing::Size(128))],
    refused: &[NO_WINDOWS[0], NO_WINDOWS[1], NO_BIASES[0], NO_BIASES[1]],
    gguf: Some(Gguf {
        architecture: "qwen3",
        modules: &[DECODER, HEAD_NORMS],
        changes: &[],
        expected: &[SILU, UNCAPPED],
    }),
    describe: |model| {
        decoder(model, Differences { head_norms: HeadsNormed::Each, ..Differences::NONE })
    },
};

/// `sliding_window` counts only beside the first field, and then for some of the layers.
pub(super) const NO_WINDOWS: [Refusal; 2] = [
    ("use_sliding_window", OFF, "false: tinyloom has no windows in this family"),
    (
        "layer_types",
        |value| value.as_array().is_some_and(|all| all.iter().all(|kind| kind == "full_attention")),
        "absent or all \"full_attention\"",
    ),
];
