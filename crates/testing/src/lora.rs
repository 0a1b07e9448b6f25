//! LoRA adapters on a frozen base against the reference network in f64: loss, the adapter's gradients,
//! generation.

use super::measure::{close, text, wide};
use super::model::{LanePair, NORMED, TIED, UNTIED, device, hardware, header_of};
use super::{Case, Outcome, SessionLane};
use crate::arch::Architecture;
use crate::config::LoraConfig;
use crate::gpu::Gpu;
use crate::session::{
    Adapter, GenerateOptions, Generation, ModelLoader, NO_PROGRESS, Trainer, TrainerOptions,
};
use crate::twins::log_sum_exp;
use crate::twins::model::{Network, Tensors, random_adapter};
use std::rc::Rc;

/// Some of the modules that are stacked into one product, and one module that is alone.
const SOME: [&str; 3] = ["v_proj", "gate_proj", "down_proj"];
const ALL: [&str; 1] = ["all-linear"];

pub(crate) fn cases() -> Vec<Case> {
    let name = |base: &str| format!("adapter {base}: loss, gradients and text");
    vec![
        Case::new(name("normed"), |lane| async move {
            adapted(&lane, &device(&lane), NORMED, &SOME, 4).await
        }),
        Case::full(name("tied"), |lane| async move {
            adapted(&lane, &device(&lane), TIED, &ALL, 3).await
        }),
        Case::full(name("untied with kernels for hardware"), |lane| async move {
            adapted(&lane, &hardware(&lane)?, UNTIED, &ALL, 8).await
        }),
    ]
}

/// Two micro-steps and a greedy text of an adapter with random A and B.
async fn adapted(
    lane: &SessionLane,
    gpu: &Rc<dyn Gpu>,
    config: &str,
    targets: &[&str],
    rank: usize,
) -> Outcome {
    let pair = LanePair::new(lane, gpu, config).await?;
    let targets = targets.iter().map(|&target| target.into()).collect();
    let lora = LoraConfig { rank, alpha: 2.5, targets, ..LoraConfig::default() };
    let architecture = Architecture::of(&pair.config).adapted(&lora).map_err(text)?;
    let adapter = Adapter::create(&pair.model, lora, NO_PROGRESS).await.map_err(text)?;
    let own = random_adapter::<f32>(&architecture, lane.seed);
    fill(&adapter, &own).await?;
    let mut weights = pair.weights.clone();
    weights.extend(own.iter().map(|(name, x)| (name.clone(), wide(x))));
    let network = Network { architecture: &architecture, weights: &weights };
    let decoded = decodes(lane, &adapter, &network).await?;
    let trained = trains(lane, &pair, &adapter, &network).await?;
    Ok(format!("{trained}, {decoded}"))
}

async fn fill(adapter: &Adapter, own: &Tensors<f32>) -> Result<(), String> {
    let model = adapter.model();
    let mut loader = ModelLoader::of_adapter(adapter);
    let (header, length) = header_of(&model.save_header(), &model.tensors());
    loader.add_file("adapter_model.safetensors", &header, length).map_err(text)?;
    for (name, values) in own {
        loader.set_piece(name, 0, bytemuck::cast_slice(values)).map_err(text)?;
    }
    loader.finish().await.map(drop).map_err(text)
}

async fn trains(
    lane: &SessionLane,
    pair: &LanePair,
    adapter: &Adapter,
    network: &Network<'_, f64>,
) -> Outcome {
    let lengths = [40, 23];
    let options = TrainerOptions {
        tokens_per_step: lengths[0],
        gradient_accumulation: 2,
        ..Default::default()
    };
    let trainer = Trainer::create(adapter.model(), options, NO_PROGRESS).await.map_err(text)?;
    let batches = lengths.map(|tokens| pair.batch(lane, tokens));
    let counted: f64 = batches.iter().map(|batch| batch.counted() as f64).sum();
    let (mut loss, mut expected, mut metrics) = (0.0, Tensors::<f64>::new(), None);
    for batch in &batches {
        let share = batch.counted() as f64 / counted;
        let trained = |weight| network.architecture.is_low_rank(weight);
        let (part, gradients) = network.loss_and_gradients(batch, &trained);
        loss += share * part;
        for (name, gradient) in gradients {
            let sum = expected.entry(name).or_insert_with(|| vec![0.0; gradient.len()]);
            sum.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += share * g);
        }
        metrics = Some(trainer.step(batch).await.map_err(text)?);
    }
    close("loss", &[metrics.ok_or("no step")?.loss as f32], &[loss], 1e-6)?;
    for (index, (name, _)) in adapter.model().tensors().iter().enumerate() {
        let gradient = trainer.read_gradient(index).await.map_err(text)?;
        close(name, &gradient, &expected[name], 1e-5)?;
    }
    Ok(format!("loss {loss:.6}"))
}

/// Every token is the reference's likeliest, with its log-probability.
async fn decodes(lane: &SessionLane, adapter: &Adapter, network: &Network<'_, f64>) -> Outcome {
    let words = network.architecture.vocab_size;
    let mut tokens = lane.integers(11, words);
    let options = GenerateOptions { max_tokens: 12, temperature: 0.0, ..Default::default() };
    let generation = Generation::start(adapter.model(), &tokens, options).await;
    let mut generation = generation.map_err(text)?;
    let mut drawn = vec![];
    loop {
        let more = generation.next().await.map_err(text)?;
        if more.is_empty() {
            break;
        }
        drawn.extend(more);
    }
    let first = tokens.len() - 1;
    tokens.extend(drawn.iter().map(|d| d.token));
    let logits = network.logits(&tokens, &vec![0; tokens.len()]);
    let mut worst = 0.0f64;
    for (row, d) in logits.chunks_exact(words).skip(first).zip(&drawn) {
        let (best, own) = (row.iter().copied().fold(f64::MIN, f64::max), row[d.token as usize]);
        let logprob = own - log_sum_exp(row);
        worst = worst.max(best - own).max((f64::from(d.logprob) - logprob).abs());
    }
    if drawn.len() == 12 && worst <= 1e-4 {
        Ok(format!("a text within {worst:.1e} nats"))
    } else {
        Err(format!("{} tokens, {worst} nats from the reference's", drawn.len()))
    }
}
