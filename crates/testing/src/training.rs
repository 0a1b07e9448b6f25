//! Whole runs of training: the same bytes twice, and through a save and a resume; a step that is
//! not finite changes nothing.

use super::harness::Operand;
use super::measure::{same, text};
use super::model::{device, header_of};
use super::{Case, Outcome, SessionLane};
use crate::config::ModelConfig;
use crate::data::{Dataset, DatasetOptions};
use crate::session::{Model, ModelLoader, NO_PROGRESS, Precision, Resume, Trainer, TrainerOptions};
use std::rc::Rc;

const CONFIG: &str = r#"{"vocab_size":32,"hidden_size":32,"intermediate_size":44,
    "num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"head_dim":16,
    "tie_word_embeddings":true,"max_position_embeddings":64}"#;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("training twice gives the same bytes", |lane| async move {
            let first = run(&lane, 4).await?;
            let second = run(&lane, 4).await?;
            same("weights", &words(&first.0).await?, &words(&second.0).await?)?;
            let recompute = TrainerOptions { recompute: true, ..options() };
            let again = run_with(&lane, 4, recompute).await?;
            let what = "weights, with activations computed again";
            same(what, &words(&first.0).await?, &words(&again.0).await?)?;
            let [kept, recomputed] =
                [first, again].map(|(_, trainer)| trainer.activation_bytes().0);
            if recomputed >= kept {
                return Err(format!("{recomputed} bytes of activations instead of {kept}"));
            }
            Ok(format!("{recomputed} bytes of activations computed again, {kept} kept"))
        }),
        Case::new("products are measured, and what was measured is taken", tuned),
        Case::new("save and resume to the bit", resume),
        Case::new("the loss falls", falls),
        Case::new("products that read f16 weights train as f32 does", mixed),
        Case::new("a step that is not finite leaves the weights", not_finite),
    ]
}

fn options() -> TrainerOptions {
    TrainerOptions {
        learning_rate: 1e-2,
        warmup_steps: 2,
        total_steps: Some(30),
        gradient_accumulation: 2,
        tokens_per_step: 48,
        ..TrainerOptions::default()
    }
}

async fn tuned(lane: Rc<SessionLane>) -> Outcome {
    let gpu = device(&lane);
    let (_, plain) = run(&lane, 3).await?;
    gpu.set_tuned(Some(vec![]));
    let measured = run(&lane, 3).await;
    let known = gpu.tuned().unwrap_or_default();
    let submits = gpu.counters().submits;
    let again = run(&lane, 0).await;
    let more = gpu.counters().submits - submits;
    gpu.set_tuned(None);
    let ((_, measured), (_, again)) = (measured?, again?);
    if known.is_empty() {
        return Err("nothing was measured".into());
    }
    let reasons = |trainer: &Trainer| -> Result<Vec<String>, String> {
        let rows = trainer.plan().map_err(text)?;
        let products = rows.into_iter().filter(|row| row.kernel.starts_with("matmul"));
        Ok(products.map(|row| row.reason).collect())
    };
    let (first, second) = (reasons(&measured)?, reasons(&again)?);
    let times = first.iter().filter(|reason| reason.starts_with("measured: ")).count();
    let kept = |(a, b): (&String, &String)| !a.starts_with("measured: ") || a == b;
    if times == 0 || !first.iter().zip(&second).all(kept) {
        return Err(format!("{times} of {} products measured: {second:?}", first.len()));
    }
    if reasons(&plain)?.iter().any(|reason| reason.contains("measured")) {
        return Err("a trainer created before shows measurements".into());
    }
    Ok(format!("{times} of {} products, {more} submits for them again", first.len()))
}

/// A text that repeats with variations, the same for every run of a case.
fn dataset(lane: &SessionLane) -> Result<Dataset, String> {
    let phrase = |i: u32| (i % 17 * 7 + i / 300 + (lane.seed % 5) as u32) % 32;
    let options =
        DatasetOptions { sequence_length: Some(20), seed: 3, ..DatasetOptions::default() };
    Dataset::from_tokens((0..900).map(phrase).collect(), options).map_err(text)
}

async fn run(lane: &SessionLane, steps: usize) -> Result<(Rc<Model>, Rc<Trainer>), String> {
    run_with(lane, steps, options()).await
}

async fn run_with(
    lane: &SessionLane,
    steps: usize,
    options: TrainerOptions,
) -> Result<(Rc<Model>, Rc<Trainer>), String> {
    let config = ModelConfig::from_json(CONFIG).map_err(text)?;
    let model = Model::create(&device(lane), config, lane.seed, NO_PROGRESS).await.map_err(text)?;
    let trainer = Trainer::create(&model, options, NO_PROGRESS).await.map_err(text)?;
    let dataset = dataset(lane)?;
    for _ in 0..steps {
        trainer.step_dataset(&dataset, &|| false).await.map_err(text)?;
    }
    Ok((model, trainer))
}

/// All weights of a model.
async fn words(model: &Model) -> Result<Vec<u32>, String> {
    let mut words = vec![];
    for index in 0..model.tensors().len() {
        let bytes = model.read_tensor(index).await.map_err(text)?;
        words.extend(bytemuck::pod_collect_to_vec::<u8, u32>(&bytes));
    }
    Ok(words)
}

/// In f32, and with products that read f16.
async fn resume(lane: Rc<SessionLane>) -> Outcome {
    for precision in [Precision::F32, Precision::Mixed] {
        let options = || TrainerOptions { precision, ..options() };
        let (whole, trainer) = run_with(&lane, 5, options()).await?;
        trainer.free();
        let (model, trainer) = run_with(&lane, 3, options()).await?;
        let (model, trainer) = reload(&lane, &model, &trainer).await?;
        let dataset = dataset(&lane)?;
        for _ in 0..2 {
            trainer.step_dataset(&dataset, &|| false).await.map_err(text)?;
        }
        same("weights", &words(&model).await?, &words(&whole).await?)?;
    }
    Ok(String::new())
}

/// The loss of each step within 1 % of that in f32, from the same weights over the same batches.
async fn mixed(lane: Rc<SessionLane>) -> Outcome {
    let mut losses = vec![];
    for precision in [Precision::F32, Precision::Mixed] {
        let options = TrainerOptions { precision, ..options() };
        let (_, trainer) = run_with(&lane, 0, options).await?;
        let dataset = dataset(&lane)?;
        let mut of_run = vec![];
        for _ in 0..25 {
            of_run.push(trainer.step_dataset(&dataset, &|| false).await.map_err(text)?.loss);
        }
        let [sum, count] = trainer.evaluate_batch(&dataset, 0).await.map_err(text)?;
        of_run.push(sum / count);
        losses.push(of_run);
    }
    let apart = losses[0].iter().zip(&losses[1]).map(|(a, b)| (a - b).abs() / a);
    let worst = apart.fold(0.0, f64::max);
    if losses[0] == losses[1] {
        return Err("the losses are the same to the bit: nothing reads f16".into());
    }
    if worst > 0.01 {
        return Err(format!("a loss is {:.2} % from that in f32", 100.0 * worst));
    }
    Ok(format!("{:.4} % apart at most", 100.0 * worst))
}

/// Bytes handed over at a time, so that a tensor comes in several pieces.
const PIECE: usize = 1000;

/// Through the bytes of a checkpoint.
async fn reload(
    lane: &SessionLane,
    model: &Rc<Model>,
    trainer: &Rc<Trainer>,
) -> Result<(Rc<Model>, Rc<Trainer>), String> {
    let mut loader = ModelLoader::new(&device(lane), model.config().clone()).map_err(text)?;
    let (header, length) = header_of(&model.save_header(), &model.tensors());
    loader.add_file("model.safetensors", &header, length).map_err(text)?;
    let state = trainer.state().await.map_err(text)?;
    let mut resume = Resume::new(model.config(), &state).map_err(text)?;
    let tensors = trainer.optimizer_tensors();
    let (header, length) = header_of(&trainer.save_header(), &tensors);
    resume.add_file("optimizer.safetensors", &header, length).map_err(text)?;
    loader.allocate().map_err(text)?.await.map_err(text)?;
    let loaded = loader.model().map_err(text)?;
    resume.allocate(loaded, Box::new(|_, _, _| false)).map_err(text)?.await.map_err(text)?;
    for (index, (name, _)) in model.tensors().iter().enumerate() {
        let bytes = model.read_tensor(index).await.map_err(text)?;
        for (at, piece) in (0..).zip(bytes.chunks(PIECE)) {
            loader.set_piece(name, (at * PIECE) as u64, piece).map_err(text)?;
        }
    }
    for (index, (name, _)) in tensors.iter().enumerate() {
        let bytes = trainer.read_optimizer_tensor(index, None).await.map_err(text)?;
        for (at, piece) in (0..).zip(bytes.chunks(PIECE)) {
            resume.set_piece(name, (at * PIECE) as u64, piece).map_err(text)?;
        }
    }
    Ok((loader.finish().await.map_err(text)?, resume.finish().await.map_err(text)?))
}

async fn falls(lane: Rc<SessionLane>) -> Outcome {
    let (_, trainer) = run(&lane, 0).await?;
    let dataset = dataset(&lane)?;
    let first = trainer.step_dataset(&dataset, &|| false).await.map_err(text)?.loss;
    let mut last = first;
    for _ in 1..25 {
        last = trainer.step_dataset(&dataset, &|| false).await.map_err(text)?.loss;
    }
    if (first - 32f64.ln()).abs() > 0.2 {
        return Err(format!("the first loss is {first}, far from that of a uniform guess"));
    }
    if last > 0.85 * first {
        return Err(format!("the loss fell from {first} to {last} only"));
    }
    Ok(format!("{first:.3} to {last:.3}"))
}

async fn not_finite(lane: Rc<SessionLane>) -> Outcome {
    let (model, trainer) = run(&lane, 1).await?;
    let dataset = dataset(&lane)?;
    // Logits of weights that large overflow, and the loss is NaN.
    let name = "model.norm.weight";
    let elements = model.config().hidden_size;
    let values = vec![f32::MAX; elements];
    let mut loader = ModelLoader::new(&device(&lane), model.config().clone()).map_err(text)?;
    let (header, length) = header_of(&model.save_header(), &model.tensors());
    loader.add_file("model.safetensors", &header, length).map_err(text)?;
    loader.allocate().map_err(text)?.await.map_err(text)?;
    for (index, (other, _)) in model.tensors().iter().enumerate() {
        let own = model.read_tensor(index).await.map_err(text)?;
        let bytes = if *other == name { bytemuck::cast_slice(&values) } else { &own[..] };
        loader.set_piece(other, 0, bytes).map_err(text)?;
    }
    trainer.free();
    let broken = loader.finish().await.map_err(text)?;
    let trainer = Trainer::create(&broken, options(), NO_PROGRESS).await.map_err(text)?;
    let before = words(&broken).await?;
    let metrics = trainer.step_dataset(&dataset, &|| false).await.map_err(text)?;
    if !metrics.skipped {
        return Err(format!("a step with loss {} was not skipped", metrics.loss));
    }
    same("weights", &words(&broken).await?, &before)?;
    for index in 0..trainer.optimizer_tensors().len() {
        let bytes = trainer.read_optimizer_tensor(index, None).await.map_err(text)?;
        let moment = bytemuck::pod_collect_to_vec::<u8, u32>(&bytes);
        let zeros = Operand::words(&vec![0; moment.len()]);
        same("moments", &moment, zeros.contents())?;
    }
    Ok(String::new())
}
