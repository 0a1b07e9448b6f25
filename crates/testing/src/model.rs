//! Whole models against the reference network in f64: loss, every gradient, logits, generation.

use super::gpu_adapters::{restrict, table};
use super::measure::{close, same, text, wide};
use super::pretend::Pretend;
use super::{Case, Outcome, SessionLane};
use crate::arch::Architecture;
use crate::config::ModelConfig;
use crate::data::{Batch, IGNORE_INDEX};
use crate::gpu::Gpu;
use crate::random::fill_weights;
use crate::session::{InferenceOptions, Model, ModelLoader, NO_PROGRESS, Trainer, TrainerOptions};
use crate::twins::model::{Model as Reference, Tensors, random_tensors};
use std::rc::Rc;

/// Grouped heads, tied embeddings, sizes that are no multiples of four.
pub(crate) const TIED: &str = r#"{"vocab_size":61,"hidden_size":42,"intermediate_size":29,
    "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":12,
    "tie_word_embeddings":true,"initializer_range":0.2,"max_position_embeddings":512}"#;
/// Untied, all sizes multiples of four, another activation.
pub(crate) const UNTIED: &str = r#"{"vocab_size":64,"hidden_size":32,"intermediate_size":48,
    "num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"head_dim":32,
    "hidden_act":"gelu_pytorch_tanh","initializer_range":0.2,"max_position_embeddings":512}"#;

/// With a window shorter than the texts, and capped scores.
pub(crate) const WINDOWED: &str = r#"{"model_type":"mistral","vocab_size":64,"hidden_size":32,
    "intermediate_size":48,"num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,
    "head_dim":32,"sliding_window":7,"attn_logit_softcapping":1.5,"initializer_range":0.2,
    "max_position_embeddings":512}"#;

/// With a window in one of two layers, norms after blocks, and capped scores and logits. Otherwise as the windowed one.
pub(crate) const ALTERNATING: &str = r#"{"model_type":"gemma2","vocab_size":64,"hidden_size":32,
    "intermediate_size":48,"num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,
    "head_dim":32,"sliding_window":7,"attn_logit_softcapping":1.5,"final_logit_softcapping":2.5,
    "query_pre_attn_scalar":20,"initializer_range":0.2,"max_position_embeddings":512}"#;

/// With norms of each head's queries and keys, heads wider together than the hidden rows, and angles
/// of which some are scaled, some not and some between.
pub(crate) const NORMED: &str = r#"{"model_type":"qwen3","vocab_size":61,"hidden_size":40,
    "intermediate_size":56,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
    "head_dim":16,"initializer_range":0.2,"max_position_embeddings":512,
    "rope_parameters":{"rope_theta":100.0,"rope_type":"llama3","factor":4.0,"low_freq_factor":1.0,
    "high_freq_factor":4.0,"original_max_position_embeddings":64}}"#;

/// With biases of queries, keys and values; otherwise as the normed one, so that most kernels are its.
pub(crate) const BIASED: &str = r#"{"model_type":"qwen2","vocab_size":61,"hidden_size":40,
    "intermediate_size":56,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
    "head_dim":16,"initializer_range":0.2,"max_position_embeddings":512,
    "rope_parameters":{"rope_theta":100.0,"rope_type":"llama3","factor":4.0,"low_freq_factor":1.0,
    "high_freq_factor":4.0,"original_max_position_embeddings":64}}"#;

/// With layer norms, learned positions, biases everywhere and no gate: matrices stored transposed, an odd
/// vocabulary.
pub(crate) const LEARNED: &str = r#"{"model_type":"gpt2","vocab_size":61,"n_embd":36,"n_inner":58,"n_layer":2,
    "n_head":3,"initializer_range":0.2,"n_positions":512,
    "embd_pdrop":0,"attn_pdrop":0,"resid_pdrop":0}"#;

/// With blocks that read one input, rotation of half of each head, and queries, keys and values stored head by head.
pub(crate) const PARALLEL: &str = r#"{"model_type":"gpt_neox","vocab_size":61,"hidden_size":48,"intermediate_size":58,
    "num_hidden_layers":2,"num_attention_heads":3,"rotary_pct":0.5,"initializer_range":0.2,
    "max_position_embeddings":512}"#;

/// Wide enough for products that split K, with 256 tokens; otherwise much as the untied one, which
/// need not train with kernels for hardware too.
const WIDE: &str = r#"{"vocab_size":64,"hidden_size":128,"intermediate_size":192,
    "num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":1,"head_dim":64,
    "hidden_act":"gelu_pytorch_tanh","initializer_range":0.05,"max_position_embeddings":512}"#;

/// Tokens of two micro-steps.
const SHORT_STEPS: [usize; 2] = [40, 23];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for (name, config) in
        [("tied", TIED), ("untied", UNTIED), ("windowed", WINDOWED), ("normed", NORMED)]
    {
        cases
            .push(Case::new(format!("model {name}: loss and gradients"), move |lane| async move {
                gradients(&lane, &device(&lane), config, SHORT_STEPS).await
            }));
        if name != "untied" {
            let case = format!("model {name}: loss and gradients with kernels for hardware");
            cases.push(Case::new(case, move |lane| async move {
                gradients(&lane, &hardware(&lane)?, config, SHORT_STEPS).await
            }));
        }
        cases.push(Case::new(format!("model {name}: logits and loss"), move |lane| async move {
            logits(&lane, config).await
        }));
    }
    let case = "model alternating: loss and gradients";
    cases.push(Case::new(case, |lane| async move {
        gradients(&lane, &device(&lane), ALTERNATING, SHORT_STEPS).await
    }));
    let case = "model alternating: logits and loss";
    cases.push(Case::new(case, |lane| async move { logits(&lane, ALTERNATING).await }));
    // The two kernels that read a bias have everyday cases of their own, and PyTorch's fixture of the family
    // runs in every host.
    let case = "model biased: loss and gradients with kernels for hardware";
    cases.push(Case::full(case, |lane| async move {
        gradients(&lane, &hardware(&lane)?, BIASED, SHORT_STEPS).await
    }));
    let case = "model learned: loss and gradients with kernels for hardware";
    cases.push(Case::new(case, |lane| async move {
        gradients(&lane, &hardware(&lane)?, LEARNED, SHORT_STEPS).await
    }));
    let case = "model parallel: loss and gradients with kernels for hardware";
    cases.push(Case::new(case, |lane| async move {
        gradients(&lane, &hardware(&lane)?, PARALLEL, SHORT_STEPS).await
    }));
    let case = "model wide: loss and gradients with split products";
    cases.push(Case::new(case, |lane| async move {
        let gpu = hardware(&lane)?;
        let model =
            Model::create(&gpu, ModelConfig::from_json(WIDE).map_err(text)?, 1, NO_PROGRESS);
        let options = TrainerOptions { tokens_per_step: 256, ..Default::default() };
        let trainer = Trainer::create(&model.await.map_err(text)?, options, NO_PROGRESS)
            .await
            .map_err(text)?;
        let plan = trainer.plan().map_err(text)?;
        if !plan.iter().any(|row| row.variant.contains("parts of K")) {
            return Err("no product of the plan is split".into());
        }
        drop(trainer);
        gradients(&lane, &gpu, WIDE, [256, 100]).await
    }));
    let case = "initial weights are the same by host and GPU";
    cases.push(Case::new(case, |lane| async move {
        for config in [BIASED, LEARNED, PARALLEL] {
            initial(&lane, config).await?;
        }
        Ok(String::new())
    }));
    cases
}

/// A new model's tensors, as the checkpoint has them.
async fn initial(lane: &SessionLane, config: &str) -> Result<(), String> {
    let config = ModelConfig::from_json(config).map_err(text)?;
    for gpu in [device(lane), hardware(lane)?] {
        let model =
            Model::create(&gpu, config.clone(), lane.seed, NO_PROGRESS).await.map_err(text)?;
        for (index, (name, shape)) in model.tensors().iter().enumerate() {
            let bias = name.ends_with(".bias");
            let mut expected = vec![if bias { 0.0 } else { 1.0 }; shape.iter().product()];
            if shape.len() > 1 {
                // What GPT-2 adds to its two layers' stream begins at half the deviation.
                let small = name.ends_with("c_proj.weight");
                let std = config.initializer_range / if small { 2.0 } else { 1.0 };
                fill_weights(lane.seed, index as u32, 0, std, &mut expected);
            }
            let layout = model.layout();
            if let Some(swap) = layout.tensors[index].swap() {
                let drawn = expected.clone();
                (0..drawn.len()).for_each(|i| expected[swap.place(i)] = drawn[i]);
            }
            let got = model.read_tensor(index).await.map_err(text)?;
            let got: Vec<u32> = bytemuck::pod_collect_to_vec(&got);
            same(name, &got, bytemuck::cast_slice(&expected))?;
        }
    }
    Ok(())
}

/// The lane's device under the name of a large GPU, so that its kernels run.
pub(crate) fn hardware(lane: &SessionLane) -> Result<Rc<dyn Gpu>, String> {
    let table = table(lane.caps().target);
    let nvidia = table.iter().find(|caps| caps.adapter.description == "NVIDIA");
    let caps = restrict(nvidia.ok_or("no such adapter")?, lane.caps());
    Ok(Pretend::gpu(&lane.gpu, caps))
}

pub(crate) fn device(lane: &SessionLane) -> Rc<dyn Gpu> {
    Rc::clone(&lane.gpu) as Rc<dyn Gpu>
}

/// The header of a file as a loader takes it, and the file's length.
pub(crate) fn header_of(file: &[u8], tensors: &[(String, Vec<usize>)]) -> (Vec<u8>, u64) {
    let elements: usize = tensors.iter().map(|(_, shape)| shape.iter().product::<usize>()).sum();
    (file[8..].to_vec(), (file.len() + 4 * elements) as u64)
}

/// A model on the GPU with given weights.
async fn load(
    gpu: &Rc<dyn Gpu>,
    config: &ModelConfig,
    weights: &Tensors<f32>,
) -> Result<Rc<Model>, String> {
    let mut loader = ModelLoader::new(gpu, config.clone()).map_err(text)?;
    let tensors = Architecture::of(config).tensors();
    let file = crate::checkpoint::write_header(&tensors, &[]);
    let (header, length) = header_of(&file, &tensors);
    loader.add_file("model.safetensors", &header, length).map_err(text)?;
    loader.allocate().map_err(text)?.await.map_err(text)?;
    for (name, values) in weights {
        loader.set_piece(name, 0, bytemuck::cast_slice(values)).map_err(text)?;
    }
    loader.finish().await.map_err(text)
}

/// A model, and what it is held against.
pub(crate) struct LanePair {
    pub config: ModelConfig,
    pub weights: Tensors<f64>,
    pub model: Rc<Model>,
}

impl LanePair {
    pub async fn new(lane: &SessionLane, gpu: &Rc<dyn Gpu>, config: &str) -> Result<Self, String> {
        let config = ModelConfig::from_json(config).map_err(text)?;
        let narrow = random_tensors::<f32>(&config, lane.seed);
        let model = load(gpu, &config, &narrow).await?;
        let weights = narrow.iter().map(|(name, x)| (name.clone(), wide(x))).collect();
        Ok(Self { config, weights, model })
    }

    pub fn reference(&self) -> Reference<'_, f64> {
        Reference { config: &self.config, weights: &self.weights }
    }

    pub fn batch(&self, lane: &SessionLane, tokens: usize) -> Batch {
        let mut targets = lane.integers(tokens, self.config.vocab_size);
        targets.iter_mut().step_by(5).for_each(|target| *target = IGNORE_INDEX);
        Batch::new(
            lane.integers(tokens, self.config.vocab_size),
            targets,
            Some(lane.documents(tokens)),
        )
    }
}

/// Two micro-steps of packed documents, the second shorter than the plan.
async fn gradients(
    lane: &SessionLane,
    gpu: &Rc<dyn Gpu>,
    config: &str,
    lengths: [usize; 2],
) -> Outcome {
    let pair = LanePair::new(lane, gpu, config).await?;
    let options = TrainerOptions {
        tokens_per_step: lengths[0],
        gradient_accumulation: 2,
        ..Default::default()
    };
    let trainer = Trainer::create(&pair.model, options, NO_PROGRESS).await.map_err(text)?;
    let batches = lengths.map(|tokens| pair.batch(lane, tokens));
    let counted: f64 = batches.iter().map(|batch| batch.counted() as f64).sum();
    let mut loss = 0.0;
    let mut expected: Tensors<f64> = Tensors::new();
    let mut metrics = None;
    for batch in &batches {
        let share = batch.counted() as f64 / counted;
        let (part, gradients) = pair.reference().loss_and_gradients(batch);
        loss += share * part;
        for (name, gradient) in gradients {
            let sum = expected.entry(name).or_insert_with(|| vec![0.0; gradient.len()]);
            sum.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += share * g);
        }
        metrics = Some(trainer.step(batch).await.map_err(text)?);
    }
    let metrics = metrics.ok_or("no step")?;
    close("loss", &[metrics.loss as f32], &[loss], 1e-6)?;
    let norm = expected.values().flatten().map(|g| g * g).sum::<f64>().sqrt();
    let got = metrics.grad_norm.ok_or("the last micro-step has no norm")?;
    close("norm", &[got as f32], &[norm], 1e-5)?;
    for (index, (name, _)) in pair.model.tensors().iter().enumerate() {
        let gradient = trainer.read_gradient(index).await.map_err(text)?;
        close(name, &gradient, &expected[name], 1e-5)?;
    }
    replays_make_nothing(lane, &trainer, &batches).await?;
    Ok(format!("loss {loss:.6}, norm {norm:.6}"))
}

/// A step after the first makes no buffer, bind group or pipeline.
async fn replays_make_nothing(
    lane: &SessionLane,
    trainer: &Rc<Trainer>,
    batches: &[Batch],
) -> Result<(), String> {
    let made = || {
        let counters = lane.gpu.counters();
        (counters.buffers, counters.bind_groups, counters.pipelines)
    };
    let before = made();
    for batch in batches {
        trainer.step(batch).await.map_err(text)?;
    }
    if made() == before { Ok(()) } else { Err(format!("a step made {before:?} into {:?}", made())) }
}

/// Prompts within one chunk of a prefill and across several.
async fn logits(lane: &SessionLane, config: &str) -> Outcome {
    let pair = LanePair::new(lane, &device(lane), config).await?;
    let mut compiled = None;
    for tokens in [1, 33, 300] {
        let prompt = lane.integers(tokens, pair.config.vocab_size);
        let expected = pair.reference().logits(&prompt, &vec![0; tokens]);
        let options = InferenceOptions::default();
        let got = pair.model.logits(&prompt, options, NO_PROGRESS).await.map_err(text)?;
        close(&format!("logits of {tokens} tokens"), &got, &expected, 1e-5)?;
        if tokens > 1 {
            let batch = Batch::next_tokens(prompt.clone());
            let loss = pair.model.loss(&prompt, None, options, NO_PROGRESS).await.map_err(text)?;
            close("loss", &[loss as f32], &[pair.reference().loss(&batch)], 1e-6)?;
        }
        let pipelines = lane.gpu.counters().pipelines;
        if compiled.replace(pipelines).is_some_and(|before| before != pipelines) {
            return Err(format!("a prompt of {tokens} tokens compiled a kernel"));
        }
    }
    Ok(String::new())
}
