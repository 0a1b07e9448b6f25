//! `config.json` and `adapter_config.json`: what is taken is taken again as it is written, and its size is known
//! before anything is allocated.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tinyloom::config::{LoraConfig, ModelConfig};
use tinyloom::session::{EstimateOptions, estimate};

/// Layers above which an estimate takes seconds: it lists every dispatch.
const MOST_LAYERS: usize = 64;

/// The model under an adapter.
const BASE: &str = r#"{"vocab_size":64,"hidden_size":32,"intermediate_size":64,"num_hidden_layers":1,
    "num_attention_heads":2}"#;

fuzz_target!(|text: &str| {
    model(text);
    adapter(text);
});

fn model(text: &str) {
    let Ok(config) = ModelConfig::from_json(text) else { return };
    let json = config.to_json();
    let again = ModelConfig::from_json(&json).expect("what is written is read");
    assert_eq!(again.to_json(), json);
    if config.num_hidden_layers <= MOST_LAYERS {
        let _ = estimate(&config, &EstimateOptions::default(), None);
    }
}

fn adapter(text: &str) {
    let Ok(config) = LoraConfig::from_peft(text) else { return };
    let json = config.to_peft();
    let again = LoraConfig::from_peft(&json).expect("what is written is read");
    assert_eq!(again.to_peft(), json);
    let base = ModelConfig::from_json(BASE).expect("a config");
    let options = EstimateOptions { adapter: Some(config), ..EstimateOptions::default() };
    let _ = estimate(&base, &options, None);
}
