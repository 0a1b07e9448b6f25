//! Plans and layouts as plain data, with no GPU.
#![cfg(feature = "testing")]

mod adapters;
mod attention;
mod buffers;
mod build;
mod decode;
mod gate_gradient;
mod layout;
mod memory;
mod norms;

use tinyloom_kernels::caps::{Capabilities, Target};
use tinyloom_model::config::ModelConfig;

fn config(text: &str) -> ModelConfig {
    ModelConfig::from_json(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn body(vocab: usize, hidden: usize, feed: usize, heads: [usize; 3], rest: &str) -> ModelConfig {
    let [n, kv, dim] = heads;
    config(&format!(
        r#"{{"vocab_size":{vocab},"hidden_size":{hidden},"intermediate_size":{feed},
            "num_hidden_layers":3,"num_attention_heads":{n},"num_key_value_heads":{kv},
            "head_dim":{dim}{rest}}}"#
    ))
}

/// Configs with the tokens of a step.
fn configs() -> Vec<(ModelConfig, usize)> {
    let tied = r#","tie_word_embeddings":true"#;
    vec![
        (body(256, 64, 128, [2, 2, 32], tied), 96),
        (body(256, 128, 384, [4, 2, 32], ""), 768),
        (body(61, 40, 37, [5, 1, 8], tied), 1),
        (body(61, 42, 29, [4, 2, 12], ""), 131),
        (body(512, 512, 1024, [2, 1, 256], r#","hidden_act":"gelu""#), 64),
        (body(150_000, 896, 4864, [14, 2, 64], tied), 512),
        (body(150_000, 896, 4864, [14, 2, 64], ""), 512),
    ]
}

fn floor() -> Capabilities {
    Capabilities::floor(Target::Native)
}
