//! `config.json`: what is taken is taken again as it is written, and its size is known before anything is
//! allocated.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tinyloom::config::ModelConfig;
use tinyloom::session::{EstimateOptions, estimate};

/// Layers above which an estimate takes seconds: it lists every dispatch.
const MOST_LAYERS: usize = 64;

fuzz_target!(|text: &str| {
    let Ok(config) = ModelConfig::from_json(text) else { return };
    let json = config.to_json();
    let again = ModelConfig::from_json(&json).expect("what is written is read");
    assert_eq!(again.to_json(), json);
    if config.num_hidden_layers <= MOST_LAYERS {
        let options = EstimateOptions { trainer: None, generate: None };
        let _ = estimate(&config, &options, None);
    }
});
