//! `trainer_state.json`, and behind a line of its own the header of `optimizer.safetensors`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tinyloom::config::ModelConfig;
use tinyloom::session::Resume;

const CONFIG: &str = r#"{"vocab_size":8,"hidden_size":4,"intermediate_size":4,"num_hidden_layers":1,
    "num_attention_heads":1,"num_key_value_heads":1}"#;

fuzz_target!(|text: &str| {
    let config = ModelConfig::from_json(CONFIG).expect("a config");
    let (state, header) = text.split_once('\n').unwrap_or((text, ""));
    let Ok(mut resume) = Resume::new(&config, state) else { return };
    assert!(
        header.len() <= resume.header_limit() || {
            resume.add_file("optimizer.safetensors", header.as_bytes(), u64::MAX).is_err()
        }
    );
    let length = 8 + header.len() as u64;
    for rest in [0, 4096, u64::MAX - length] {
        let _ = resume.add_file("optimizer.safetensors", header.as_bytes(), length + rest);
    }
});
