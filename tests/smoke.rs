//! A tiny model trains and decodes natively.
use std::rc::Rc;
use tinyloom::{
    config::ModelConfig,
    data::{Dataset, DatasetOptions},
    gpu::*,
    session::*,
};

#[test]
fn trains_and_decodes() {
    pollster::block_on(async {
        let device = WgpuDevice::open(&DeviceRequest::default()).await.unwrap();
        println!("{:?}", device.capabilities());
        let gpu: Rc<dyn Gpu> = device.clone();
        let config = ModelConfig::from_json(r#"{"model_type":"llama","vocab_size":256,"hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"head_dim":32,"tie_word_embeddings":true}"#).unwrap();
        let model = Model::create(&gpu, config, 42).await.unwrap();
        let text = "the quick brown fox jumps over the lazy dog. ".repeat(100);
        let data = Dataset::from_tokens(
            text.bytes().map(u32::from).collect(),
            DatasetOptions { sequence_length: Some(32), ..Default::default() },
        )
        .unwrap();
        let trainer = Trainer::create(
            &model,
            TrainerOptions {
                tokens_per_step: 128,
                warmup_steps: 5,
                learning_rate: 3e-3,
                ..Default::default()
            },
        )
        .await
        .unwrap();
        let mut first = 0.0;
        let mut lastl = 0.0;
        for i in 0..60 {
            let m = trainer.step_dataset(&data).await.unwrap();
            if i == 0 {
                first = m.loss;
            }
            lastl = m.loss;
            if i % 10 == 0 {
                println!("{m:?}");
            }
        }
        println!("{:?}", gpu.counters());
        assert!(lastl < first * 0.5, "{first} -> {lastl}");
        let prompt: Vec<u32> = "the quick ".bytes().map(u32::from).collect();
        let mut generation = Generation::start(
            &model,
            &prompt,
            GenerateOptions { max_tokens: 60, temperature: 0.5, ..Default::default() },
        )
        .await
        .unwrap();
        let mut out = Vec::new();
        loop {
            let d = generation.next().await.unwrap();
            if d.is_empty() {
                break;
            }
            out.extend(d.iter().map(|d| d.token as u8));
        }
        println!("{}", String::from_utf8_lossy(&out));
        println!("{}", model.loss(&prompt, None).await.unwrap());
    });
}
