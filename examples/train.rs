//! Trains a small model with the crate, on the GPU that wgpu finds, and prints a sample.
//!
//! `cargo run --release --example train -- [STEPS]`

use tinyloom::config::ModelConfig;
use tinyloom::data::{Dataset, DatasetOptions};
use tinyloom::error::Result;
use tinyloom::gpu::{DeviceRequest, Gpu, WgpuDevice};
use tinyloom::session::{GenerateOptions, Generation, Model, NO_PROGRESS, Trainer, TrainerOptions};

const TEXT: &str = "The cat sees the fox. The dog hears the hen. The owl follows the bee. ";

async fn run(steps: u64) -> Result<()> {
    let gpu: std::rc::Rc<dyn Gpu> = WgpuDevice::open(&DeviceRequest::default()).await?;
    let config = ModelConfig::from_json(
        r#"{"vocab_size": 256, "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2,
            "num_attention_heads": 4, "max_position_embeddings": 256, "tie_word_embeddings": true}"#,
    )?;
    let model = Model::create(&gpu, config, 0, NO_PROGRESS).await?;
    println!("{} weights on {}", model.parameter_count(), gpu.capabilities().adapter.description);

    // One token per byte, as ByteTokenizer makes them.
    let tokens = TEXT.repeat(100).bytes().map(u32::from).collect();
    let dataset = Dataset::from_tokens(tokens, DatasetOptions::default())?;
    let options = TrainerOptions {
        learning_rate: 3e-3,
        tokens_per_step: 512,
        total_steps: Some(steps),
        ..TrainerOptions::default()
    };
    let trainer = Trainer::create(&model, options, NO_PROGRESS).await?;
    for _ in 0..steps {
        let metrics = trainer.step_dataset(&dataset, &|| false).await?;
        if metrics.step % 10 == 0 {
            println!("step {}: loss {:.3}", metrics.step, metrics.loss);
        }
    }

    let prompt: Vec<u32> = "The ".bytes().map(u32::from).collect();
    let options = GenerateOptions { max_tokens: 80, ..GenerateOptions::default() };
    let mut generation = Generation::start(&model, &prompt, options).await?;
    let mut text = b"The ".to_vec();
    loop {
        let drawn = generation.next().await?;
        if drawn.is_empty() {
            break;
        }
        text.extend(drawn.iter().map(|one| one.token as u8));
    }
    println!("{}", String::from_utf8_lossy(&text));
    Ok(())
}

fn main() -> Result<()> {
    let steps = std::env::args().nth(1).map_or(60, |text| text.parse().expect("a number of steps"));
    pollster::block_on(run(steps))
}
