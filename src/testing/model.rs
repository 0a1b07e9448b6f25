//! Whole models against the reference network in f64: loss, every gradient, logits, generation.

use super::adapters::{restrict, table};
use super::lane::Lane;
use super::measure::{close, same, text, wide};
use super::pretend::Pretend;
use super::{Case, Outcome};
use crate::arch::Architecture;
use crate::config::ModelConfig;
use crate::data::{Batch, IGNORE_INDEX};
use crate::error::ErrorCode;
use crate::gpu::Gpu;
use crate::kernels::{KvCache, WeightFormat};
use crate::lower::attention_shape;
use crate::random::fill_weights;
use crate::session::{
    GenerateOptions, Generation, InferenceOptions, Model, ModelLoader, Trainer, TrainerOptions,
    UNWATCHED,
};
use crate::twins::loss::log_sum_exp;
use crate::twins::model::{Model as Reference, Tensors, random_tensors};
use std::rc::Rc;

/// Grouped heads, tied embeddings, sizes that are no multiples of four.
pub(super) const TIED: &str = r#"{"vocab_size":61,"hidden_size":42,"intermediate_size":29,
    "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":12,
    "tie_word_embeddings":true,"initializer_range":0.2,"max_position_embeddings":512}"#;
/// Untied, all sizes multiples of four, another activation.
pub(super) const UNTIED: &str = r#"{"vocab_size":64,"hidden_size":32,"intermediate_size":48,
    "num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"head_dim":32,
    "hidden_act":"gelu_pytorch_tanh","initializer_range":0.2,"max_position_embeddings":512}"#;

/// With a window shorter than the texts, and capped scores.
const WINDOWED: &str = r#"{"model_type":"mistral","vocab_size":64,"hidden_size":32,
    "intermediate_size":48,"num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,
    "head_dim":32,"sliding_window":7,"attn_logit_softcapping":1.5,"initializer_range":0.2,
    "max_position_embeddings":512}"#;

/// With a window in one of two layers, norms behind blocks, and capped scores and logits; otherwise as the
/// windowed one.
const ALTERNATING: &str = r#"{"model_type":"gemma2","vocab_size":64,"hidden_size":32,
    "intermediate_size":48,"num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,
    "head_dim":32,"sliding_window":7,"attn_logit_softcapping":1.5,"final_logit_softcapping":2.5,
    "query_pre_attn_scalar":20,"initializer_range":0.2,"max_position_embeddings":512}"#;

/// With norms of each head's queries and keys, heads wider together than the hidden rows, and angles
/// of which some are scaled, some not and some between.
pub(super) const NORMED: &str = r#"{"model_type":"qwen3","vocab_size":61,"hidden_size":40,
    "intermediate_size":56,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
    "head_dim":16,"initializer_range":0.2,"max_position_embeddings":512,
    "rope_parameters":{"rope_theta":100.0,"rope_type":"llama3","factor":4.0,"low_freq_factor":1.0,
    "high_freq_factor":4.0,"original_max_position_embeddings":64}}"#;

/// With biases of queries, keys and values; otherwise as the normed one, so that most kernels are its.
pub(super) const BIASED: &str = r#"{"model_type":"qwen2","vocab_size":61,"hidden_size":40,
    "intermediate_size":56,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
    "head_dim":16,"initializer_range":0.2,"max_position_embeddings":512,
    "rope_parameters":{"rope_theta":100.0,"rope_type":"llama3","factor":4.0,"low_freq_factor":1.0,
    "high_freq_factor":4.0,"original_max_position_embeddings":64}}"#;

/// With layer norms, learned positions, biases everywhere and no gate: matrices stored transposed, an odd
/// vocabulary.
const LEARNED: &str = r#"{"model_type":"gpt2","vocab_size":61,"n_embd":36,"n_inner":58,"n_layer":2,
    "n_head":3,"initializer_range":0.2,"n_positions":512}"#;

/// With blocks that read one input, rotation of half of each head, and queries, keys and values stored head by head.
const PARALLEL: &str = r#"{"model_type":"gpt_neox","vocab_size":61,"hidden_size":48,"intermediate_size":58,
    "num_hidden_layers":2,"num_attention_heads":3,"rotary_pct":0.5,"initializer_range":0.2,
    "max_position_embeddings":512}"#;

/// Wide enough for products that split K, with 256 tokens; otherwise much as the untied one, which
/// need not train with kernels for hardware too.
const WIDE: &str = r#"{"vocab_size":64,"hidden_size":128,"intermediate_size":192,
    "num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":1,"head_dim":64,
    "hidden_act":"gelu_pytorch_tanh","initializer_range":0.05,"max_position_embeddings":512}"#;

/// How far a packed cache may take a log-probability from the reference, in nats. Over 24 seeds of the
/// cases below the most were 0.0038 with f16 and 0.085 with int8.
const F16_NATS: f64 = 0.015;
const INT8_NATS: f64 = 0.2;

/// Tokens of two micro-steps.
const SHORT_STEPS: [usize; 2] = [40, 23];

#[expect(clippy::too_many_lines, reason = "a table of cases")]
pub(super) fn cases() -> Vec<Case> {
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
        // Weights of deviation 0.2 make scores that feel each rounding of a key.
        for (cache, tolerance) in
            [(KvCache::F32, 1e-4), (KvCache::F16, F16_NATS), (KvCache::Int8, INT8_NATS)]
        {
            let case = format!("model {name}: greedy generation, {} cache", cache.name());
            cases.push(Case::new(case, move |lane| async move {
                generation(&lane, &device(&lane), config, cache, tolerance, &SHORT).await
            }));
        }
    }
    for (cache, tolerance) in
        [(KvCache::F32, 1e-4), (KvCache::F16, F16_NATS), (KvCache::Int8, INT8_NATS)]
    {
        let case = format!("model windowed: a small cache for a long text, {}", cache.name());
        cases.push(Case::new(case, move |lane| ring(lane, cache, tolerance)));
    }
    let case = "model windowed: a small cache for a long text with kernels for hardware";
    cases.push(Case::new(case, |lane| async move {
        let (gpu, config) = (hardware(&lane)?, long_windowed());
        generation(&lane, &gpu, &config, KvCache::F32, 1e-4, &AROUND_THE_RING).await
    }));
    let case = "model alternating: loss and gradients";
    cases.push(Case::new(case, |lane| async move {
        gradients(&lane, &device(&lane), ALTERNATING, SHORT_STEPS).await
    }));
    let case = "model alternating: logits and loss";
    cases.push(Case::new(case, |lane| async move { logits(&lane, ALTERNATING).await }));
    let case = "model alternating: greedy generation";
    cases.push(Case::new(case, |lane| async move {
        let (gpu, cache) = (device(&lane), KvCache::F32);
        generation(&lane, &gpu, ALTERNATING, cache, 1e-4, &SHORT).await
    }));
    let case = "model alternating: greedy generation with kernels for hardware";
    cases.push(Case::new(case, |lane| async move {
        let (gpu, cache) = (hardware(&lane)?, KvCache::Int8);
        generation(&lane, &gpu, ALTERNATING, cache, INT8_NATS, &SHORT).await
    }));
    // A cache of f32 takes what the product before it gives, a packed one rows of f32.
    // The two kernels that read a bias have everyday cases of their own, and PyTorch's fixture of the family
    // runs in every host.
    let case = "model biased: loss and gradients with kernels for hardware";
    cases.push(Case::full(case, |lane| async move {
        gradients(&lane, &hardware(&lane)?, BIASED, SHORT_STEPS).await
    }));
    let case = "model biased: greedy generation with kernels for hardware";
    cases.push(Case::full(case, |lane| async move {
        generation(&lane, &hardware(&lane)?, BIASED, KvCache::F32, 1e-4, &SHORT).await
    }));
    let case = "model learned: loss and gradients with kernels for hardware";
    cases.push(Case::new(case, |lane| async move {
        gradients(&lane, &hardware(&lane)?, LEARNED, SHORT_STEPS).await
    }));
    let case = "model learned: greedy generation with kernels for hardware";
    cases.push(Case::new(case, |lane| async move {
        generation(&lane, &hardware(&lane)?, LEARNED, KvCache::F32, 1e-4, &SHORT).await
    }));
    let case = "model parallel: loss and gradients with kernels for hardware";
    cases.push(Case::new(case, |lane| async move {
        gradients(&lane, &hardware(&lane)?, PARALLEL, SHORT_STEPS).await
    }));
    let case = "model parallel: greedy generation with kernels for hardware";
    cases.push(Case::new(case, |lane| async move {
        generation(&lane, &hardware(&lane)?, PARALLEL, KvCache::F32, 1e-4, &SHORT).await
    }));
    for (cache, tolerance) in [(KvCache::F32, 1e-4), (KvCache::Int8, INT8_NATS)] {
        let name = cache.name();
        let case = format!("model untied: greedy generation with kernels for hardware, {name}");
        cases.push(Case::new(case, move |lane| async move {
            generation(&lane, &hardware(&lane)?, UNTIED, cache, tolerance, &SHORT).await
        }));
    }
    for (name, config) in [("untied", UNTIED), ("windowed", WINDOWED)] {
        let case = format!("model {name}: a beginning that the cache holds is not read again");
        cases.push(Case::new(case, move |lane| async move { reuse(&lane, config).await }));
    }
    for (cache, tolerance) in [(KvCache::F32, 1e-4), (KvCache::Int8, INT8_NATS)] {
        let case = format!("model untied: a cache that grows with its text, {}", cache.name());
        cases.push(Case::new(case, move |lane| growth(lane, cache, tolerance)));
    }
    let case = "model untied: loss in turns with generation from packed weights";
    cases.push(Case::new(case, alternating));
    let case = "model wide: loss and gradients with split products";
    cases.push(Case::new(case, |lane| async move {
        let gpu = hardware(&lane)?;
        let model = Model::create(&gpu, ModelConfig::from_json(WIDE).map_err(text)?, 1, UNWATCHED);
        let options = TrainerOptions { tokens_per_step: 256, ..Default::default() };
        let trainer =
            Trainer::create(&model.await.map_err(text)?, options, UNWATCHED).await.map_err(text)?;
        let plan = trainer.plan().map_err(text)?;
        if !plan.iter().any(|row| row.kernel == "linear_sum") {
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
    cases.push(Case::new("a refused call between tokens leaves the text as it was", refusal));
    cases
}

/// A new model's tensors, as the checkpoint has them.
async fn initial(lane: &Lane, config: &str) -> Result<(), String> {
    let config = ModelConfig::from_json(config).map_err(text)?;
    for gpu in [device(lane), hardware(lane)?] {
        let model =
            Model::create(&gpu, config.clone(), lane.seed, UNWATCHED).await.map_err(text)?;
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
pub(super) fn hardware(lane: &Lane) -> Result<Rc<dyn Gpu>, String> {
    let table = table(lane.caps().target);
    let nvidia = table.iter().find(|caps| caps.adapter.description == "NVIDIA");
    let caps = restrict(nvidia.ok_or("no such adapter")?, lane.caps());
    Ok(Pretend::gpu(&lane.gpu, caps))
}

pub(super) fn device(lane: &Lane) -> Rc<dyn Gpu> {
    Rc::clone(&lane.gpu) as Rc<dyn Gpu>
}

/// The header of a file as a loader takes it, and the file's length.
pub(super) fn header_of(file: &[u8], tensors: &[(String, Vec<usize>)]) -> (Vec<u8>, u64) {
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
pub(super) struct Pair {
    pub config: ModelConfig,
    pub weights: Tensors<f64>,
    pub model: Rc<Model>,
}

impl Pair {
    pub async fn new(lane: &Lane, gpu: &Rc<dyn Gpu>, config: &str) -> Result<Self, String> {
        let config = ModelConfig::from_json(config).map_err(text)?;
        let narrow = random_tensors::<f32>(&config, lane.seed);
        let model = load(gpu, &config, &narrow).await?;
        let weights = narrow.iter().map(|(name, x)| (name.clone(), wide(x))).collect();
        Ok(Self { config, weights, model })
    }

    pub fn reference(&self) -> Reference<'_, f64> {
        Reference { config: &self.config, weights: &self.weights }
    }

    pub fn batch(&self, lane: &Lane, tokens: usize) -> Batch {
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
async fn gradients(lane: &Lane, gpu: &Rc<dyn Gpu>, config: &str, lengths: [usize; 2]) -> Outcome {
    let pair = Pair::new(lane, gpu, config).await?;
    let options = TrainerOptions {
        tokens_per_step: lengths[0],
        gradient_accumulation: 2,
        ..Default::default()
    };
    let trainer = Trainer::create(&pair.model, options, UNWATCHED).await.map_err(text)?;
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
    lane: &Lane,
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
async fn logits(lane: &Lane, config: &str) -> Outcome {
    let pair = Pair::new(lane, &device(lane), config).await?;
    let mut compiled = None;
    for tokens in [1, 33, 300] {
        let prompt = lane.integers(tokens, pair.config.vocab_size);
        let expected = pair.reference().logits(&prompt, &vec![0; tokens]);
        let options = InferenceOptions::default();
        let got = pair.model.logits(&prompt, options, UNWATCHED).await.map_err(text)?;
        close(&format!("logits of {tokens} tokens"), &got, &expected, 1e-5)?;
        if tokens > 1 {
            let batch = Batch::next_tokens(prompt.clone());
            let loss = pair.model.loss(&prompt, None, options, UNWATCHED).await.map_err(text)?;
            close("loss", &[loss as f32], &[pair.reference().loss(&batch)], 1e-6)?;
        }
        let pipelines = lane.gpu.counters().pipelines;
        if compiled.replace(pipelines).is_some_and(|before| before != pipelines) {
            return Err(format!("a prompt of {tokens} tokens compiled a kernel"));
        }
    }
    Ok(String::new())
}

/// Prompts of one chunk and of two, with the tokens that follow.
const SHORT: [(usize, usize); 2] = [(1, 20), (270, 20)];
/// Several times the rows of the windowed model's cache.
const AROUND_THE_RING: [(usize, usize); 1] = [(700, 100)];

/// Every token is the reference's likeliest, to the rounding of the cache, with its log-probability.
/// `texts` are the lengths of prompts and of what follows them.
async fn generation(
    lane: &Lane,
    gpu: &Rc<dyn Gpu>,
    config: &str,
    cache: KvCache,
    tolerance: f64,
    texts: &[(usize, usize)],
) -> Outcome {
    let pair = Pair::new(lane, gpu, config).await?;
    let (mut said, mut worst) = (vec![], 0.0f64);
    for &(length, max_tokens) in texts {
        let prompt = lane.integers(length, pair.config.vocab_size);
        let (tokens, error) = continued(&pair, &prompt, cache, tolerance, max_tokens).await?;
        worst = worst.max(error);
        said.push(tokens.last().copied().unwrap_or_default());
    }
    Ok(format!("last tokens {said:?}, {worst:.1e} nats at most from the reference"))
}

/// The prompt and the likeliest tokens after it, each held against the reference; also the largest
/// difference from that in nats.
async fn continued(
    pair: &Pair,
    prompt: &[u32],
    cache: KvCache,
    tolerance: f64,
    max_tokens: usize,
) -> Result<(Vec<u32>, f64), String> {
    let options = GenerateOptions {
        max_tokens,
        temperature: 0.0,
        kv_cache: cache,
        ..GenerateOptions::default()
    };
    let mut generation = Generation::start(&pair.model, prompt, options).await.map_err(text)?;
    let mut drawn = vec![];
    loop {
        match generation.next().await.map_err(text)? {
            some if some.is_empty() => break,
            some => drawn.extend(some),
        }
    }
    if drawn.len() != max_tokens {
        return Err(format!("{} tokens instead of {max_tokens}", drawn.len()));
    }
    let mut tokens = prompt.to_vec();
    tokens.extend(drawn.iter().map(|d| d.token));
    // Causal: the logits of the whole text hold those of each of its beginnings.
    let all = pair.reference().logits(&tokens, &vec![0; tokens.len()]);
    let vocabulary = pair.config.vocab_size;
    let mut worst = 0.0f64;
    for (i, d) in drawn.iter().enumerate() {
        let row = &all[(prompt.len() + i - 1) * vocabulary..][..vocabulary];
        let best = row.iter().copied().fold(f64::MIN, f64::max);
        let own = row[d.token as usize];
        let error = (f64::from(d.logprob) - (own - log_sum_exp(row))).abs();
        worst = worst.max(error).max(best - own);
        if best - own > tolerance {
            return Err(format!("token {i} is {}, {:.1e} below the best", d.token, best - own));
        }
        if error.is_nan() || error > tolerance {
            return Err(format!("log-probability {}, {error:.1e} off", d.logprob));
        }
    }
    Ok((tokens, worst))
}

/// A text that begins like the one in the cache is read from where it differs.
async fn reuse(lane: &Lane, config: &str) -> Outcome {
    let config =
        config.replace(r#""max_position_embeddings":512"#, r#""max_position_embeddings":1024"#);
    // Dispatches are counted, so that a slow GPU must not get smaller chunks.
    let pair = Pair::new(lane, &Pretend::timeless(&lane.gpu), &config).await?;
    let prompt = lane.integers(600, pair.config.vocab_size);
    let others = lane.integers(12, pair.config.vocab_size);
    let read = async |prompt: &[u32]| {
        let before = lane.gpu.counters().dispatches;
        let (tokens, _) = continued(&pair, prompt, KvCache::F32, 1e-4, 6).await?;
        Ok::<_, String>((tokens, lane.gpu.counters().dispatches - before))
    };
    let (_, one_chunk) = read(&others).await?;
    let (whole, three_chunks) = read(&prompt).await?;
    let two_chunks = (one_chunk + three_chunks) / 2;
    let longer = [&whole[..], &others].concat();
    let parted = [&prompt[..300], &others].concat();
    // A ring has given the rows of the 300th position to later ones.
    let after_ring = if pair.config.sliding_window.is_some() { two_chunks } else { one_chunk };
    for (what, text, dispatches) in [
        ("the same text", &prompt, one_chunk),
        ("one that goes on", &longer, one_chunk),
        ("the longer one again", &longer, one_chunk),
        ("one that parts from it", &parted, after_ring),
        ("another one", &others, one_chunk),
        ("the first one", &prompt, three_chunks),
    ] {
        let (_, got) = read(text).await.map_err(|e| format!("{what}: {e}"))?;
        if got != dispatches {
            return Err(format!("{what} took {got} dispatches, not {dispatches}"));
        }
    }
    // The logits of a text are in the cache too; other weights make all of it void.
    pair.model.logits(&longer, InferenceOptions::default(), UNWATCHED).await.map_err(text)?;
    let (_, got) = read(&longer).await?;
    pair.model.changed();
    let (_, void) = read(&longer).await?;
    if (got, void) != (one_chunk, three_chunks) {
        return Err(format!("{got} dispatches after logits, {void} after other weights"));
    }
    Ok(format!("{three_chunks} dispatches, {one_chunk} where the beginning is in the cache"))
}

/// A text that outgrows its cache: what that holds is copied, not read again, and nothing compiles.
async fn growth(lane: Rc<Lane>, cache: KvCache, tolerance: f64) -> Outcome {
    let pair = Pair::new(&lane, &Pretend::timeless(&lane.gpu), UNTIED).await?;
    let mut dispatches = vec![];
    for (length, tokens) in [(9, 10), (11, 20), (200, 300)] {
        let prompt = lane.integers(length, pair.config.vocab_size);
        let before = lane.gpu.counters();
        continued(&pair, &prompt, cache, tolerance, tokens).await?;
        let after = lane.gpu.counters();
        if length > 9 && after.pipelines != before.pipelines {
            return Err(format!("{} pipelines compiled", after.pipelines - before.pipelines));
        }
        dispatches.push(after.dispatches - before.dispatches);
    }
    let of_token = (dispatches[1] - dispatches[0]) / 10;
    let expected = dispatches[0] + 290 * of_token;
    if dispatches[2] != expected {
        return Err(format!("{} dispatches, not {expected}", dispatches[2]));
    }
    Ok(format!("{of_token} dispatches per token"))
}

/// Other options between two calls of the same ones: nothing is made, packed or read again.
async fn alternating(lane: Rc<Lane>) -> Outcome {
    let pair = Pair::new(&lane, &Pretend::timeless(&lane.gpu), UNTIED).await?;
    let options = GenerateOptions {
        max_tokens: 8,
        temperature: 0.0,
        weights: WeightFormat::Int8,
        ..GenerateOptions::default()
    };
    let (prompt, others) = (lane.integers(40, 64), lane.integers(30, 64));
    let mut rounds = vec![];
    for _ in 0..3 {
        let before = lane.gpu.counters();
        pair.model
            .loss(&others, None, InferenceOptions::default(), UNWATCHED)
            .await
            .map_err(text)?;
        let generation = Generation::start(&pair.model, &prompt, options.clone()).await;
        let mut generation = generation.map_err(text)?;
        let mut tokens = vec![];
        loop {
            match generation.next().await.map_err(text)? {
                some if some.is_empty() => break,
                some => tokens.extend(some.iter().map(|drawn| drawn.token)),
            }
        }
        let after = lane.gpu.counters();
        let made = after.bind_groups - before.bind_groups + after.pipelines - before.pipelines;
        rounds.push((made, after.gpu_bytes, after.dispatches - before.dispatches, tokens));
    }
    let [(made, _, first, _), (none, bytes, second, tokens), last] = &rounds[..] else {
        return Err("three rounds".into());
    };
    if *made == 0 || second >= first || *last != (0, *bytes, *second, tokens.clone()) || *none != 0
    {
        return Err(format!("objects, bytes, dispatches and tokens by round: {rounds:?}"));
    }
    Ok(format!("{first} dispatches, then {second}"))
}

/// Bytes on the GPU besides the weights, for a text of 1,700 tokens.
async fn inference_bytes(
    gpu: &Rc<dyn Gpu>,
    config: &ModelConfig,
    cache: KvCache,
) -> Result<u64, String> {
    let model = Model::create(gpu, config.clone(), 1, UNWATCHED).await.map_err(text)?;
    let before = model.gpu_bytes();
    let options = GenerateOptions { kv_cache: cache, ..GenerateOptions::default() };
    Generation::start(&model, &[1; 1700], options).await.map_err(text)?;
    Ok(model.gpu_bytes() - before)
}

/// The logits of all positions of a text of three chunks, the middle one whole: also those whose
/// keys the newest rows of their chunk all but overwrite.
async fn every_row(lane: &Lane, gpu: &Rc<dyn Gpu>, config: &str) -> Result<(), String> {
    let pair = Pair::new(lane, gpu, config).await?;
    let prompt = lane.integers(700, pair.config.vocab_size);
    let expected = pair.reference().logits(&prompt, &[0; 700]);
    let got =
        pair.model.logits(&prompt, InferenceOptions::default(), UNWATCHED).await.map_err(text)?;
    let vocabulary = pair.config.vocab_size;
    for (i, (got, row)) in got.chunks(vocabulary).zip(expected.chunks(vocabulary)).enumerate() {
        close(&format!("logits of position {i}"), got, row, 1e-5)?;
    }
    Ok(())
}

/// The windowed model with room for a text longer than its cache.
pub(super) fn long_windowed() -> String {
    WINDOWED.replace(r#""max_position_embeddings":512"#, r#""max_position_embeddings":2048"#)
}

/// A text that goes around the cache of a window of 7 and a chunk of 256, 262 rows, twice while the
/// prompt is read and once more while tokens follow; and what that cache saves.
async fn ring(lane: Rc<Lane>, cache: KvCache, tolerance: f64) -> Outcome {
    let gpu = device(&lane);
    let config = long_windowed();
    let said = generation(&lane, &gpu, &config, cache, tolerance, &AROUND_THE_RING).await?;
    if cache == KvCache::F32 {
        every_row(&lane, &gpu, &config).await?;
    }
    let config = ModelConfig::from_json(&config).map_err(text)?;
    let whole = ModelConfig { sliding_window: None, ..config.clone() };
    let rows = (config.num_hidden_layers * (2048 - 262)) as u64;
    let shape = attention_shape(Architecture::of(&config).layers[0].attention, 1, None);
    let saved = rows * cache.row_words(&shape) as u64 * 4;
    let small = inference_bytes(&gpu, &config, cache).await?;
    let large = inference_bytes(&gpu, &whole, cache).await?;
    if small + saved > large {
        return Err(format!("{small} bytes, {large} without a window: less than {saved} saved"));
    }
    Ok(format!("{said}; {small} bytes instead of {large}"))
}

/// Generates greedily, with `between` after the first tokens.
async fn generate_around(
    model: &Rc<Model>,
    prompt: &[u32],
    between: impl AsyncFnOnce() -> Result<(), String>,
) -> Result<Vec<u32>, String> {
    let options =
        GenerateOptions { max_tokens: 24, temperature: 0.0, ..GenerateOptions::default() };
    let mut generation = Generation::start(model, prompt, options).await.map_err(text)?;
    let mut tokens = generation.next().await.map_err(text)?;
    between().await?;
    loop {
        match generation.next().await.map_err(text)? {
            some if some.is_empty() => break,
            some => tokens.extend(some),
        }
    }
    Ok(tokens.iter().map(|drawn| drawn.token).collect())
}

/// A call that asks for more than a binding holds fails, and the cache under a running generation,
/// which is about to grow past a power of two, goes on as if nothing had been asked.
async fn refusal(lane: Rc<Lane>) -> Outcome {
    let config = TIED.replace("512", "4096");
    let mut caps = lane.caps().clone();
    // Room for the cache of 1,024 tokens, 192 bytes each.
    caps.limits.max_storage_buffer_binding_size = 192 << 10;
    let pair = Pair::new(&lane, &Pretend::gpu(&lane.gpu, caps), &config).await?;
    let prompt = lane.integers(250, pair.config.vocab_size);
    let expected = generate_around(&pair.model, &prompt, async || Ok(())).await?;
    let long = lane.integers(1025, pair.config.vocab_size);
    let refused =
        async || match pair.model.logits(&long, InferenceOptions::default(), UNWATCHED).await {
            Err(error) if error.code == ErrorCode::LimitExceeded => Ok(()),
            Err(error) => Err(text(error)),
            Ok(_) => Err("1,025 tokens were not refused".into()),
        };
    let got = generate_around(&pair.model, &prompt, refused).await?;
    same("tokens", &got, &expected)?;
    Ok(String::new())
}
