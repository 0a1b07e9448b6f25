//! Whole plans, executed dispatch by dispatch, against the graph's twin in f64.

use super::Double;
use super::tests::{
    ALTERNATING, BIASED, LEARNED, NORMED, PARALLEL, Pair, TIED, TWO_TABLES, UNSCALED, UNTIED,
    WINDOWED, batch, integers, named, software,
};
use crate::arch::Architecture;
use crate::config::ModelConfig;
use crate::data::Batch;
use crate::gpu::Gpu;
use crate::kernels::{KvCacheFormat, LinearShape, LinearTile, TunedProduct, WeightFormat};
use crate::lower::{TrainChoices, TrainPlans, train_plans};
use crate::optim::Optimizer;
use crate::params::Params;
use crate::plan::{MOST_NUMBERS, PlanRow};
use crate::session::{
    GenerateOptions, Generation, InferenceOptions, Metrics, NO_PROGRESS, Trainer, TrainerOptions,
};
use crate::twins::adamw_forward;
use crate::twins::check::assert_close;
use crate::twins::log_sum_exp;
use crate::twins::model::Tensors;
use crate::twins::{Decision, StepOptions};
use crate::twins::{pack_weights_forward, unpack_weights_forward};
use pollster::block_on;
use std::rc::Rc;

/// Loss and gradients of two micro-steps by the graph's twin.
fn expected(pair: &Pair, seeds: [u32; 2], lengths: [usize; 2]) -> (f64, Tensors<f64>) {
    let batches = [0, 1].map(|i| batch(&pair.config, seeds[i], lengths[i]));
    let counted: f64 = batches.iter().map(|batch| batch.counted() as f64).sum();
    let (mut loss, mut sums) = (0.0, Tensors::<f64>::new());
    for batch in &batches {
        let share = batch.counted() as f64 / counted;
        let (part, gradients) = pair.reference().loss_and_gradients(batch);
        loss += share * part;
        for (name, gradient) in gradients {
            let sum = sums.entry(name).or_insert_with(|| vec![0.0; gradient.len()]);
            sum.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += share * g);
        }
    }
    (loss, sums)
}

/// What a trainer's step says to twins, without clipping.
pub(super) fn step_options(learning_rate: f64, options: &TrainerOptions) -> StepOptions<f64> {
    let plain = StepOptions {
        learning_rate,
        weight_decay: options.weight_decay,
        max_grad_norm: f64::INFINITY,
        gradient_scale: 1.0,
        carried: [0.0; 4],
        numbers: [[0.0; 2]; MOST_NUMBERS],
    };
    plain.with(&Optimizer::new(options.optimizer, &options.numbers))
}

/// Holds the updated weights to the optimizer's twin, given the gradients that the device had.
/// Adam's first step is nearly a gradient's sign: of other gradients, be they as close as can be, those
/// that are nearly 0 would give other steps.
fn held_to_adamw(
    pair: &Pair,
    gradients: &Tensors<f64>,
    metrics: &Metrics,
    options: &TrainerOptions,
) {
    let of = step_options(metrics.learning_rate, options);
    let norm = gradients.values().flatten().map(|g| g * g).sum::<f64>().sqrt();
    let clip = options.max_grad_norm.unwrap_or(f64::INFINITY) / (norm + 1e-6);
    assert!(clip < 1.0, "nothing is clipped at a norm of {norm}");
    let [[_, first], [_, second], ..] = of.numbers;
    let decision = Decision { norm, update: true, factor: clip, carried: [first, second] };
    for (index, (name, shape)) in pair.model.tensors().iter().enumerate() {
        let mut x = pair.weights[name].clone();
        let [mut m, mut v] = [(); 2].map(|()| vec![0.0; x.len()]);
        let g = &gradients[name];
        adamw_forward(&mut x, g, [&mut m, &mut v], &of, &decision, shape.len() > 1);
        let bytes = block_on(pair.model.read_tensor(index)).unwrap();
        let got: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes);
        for (i, (&got, &x)) in got.iter().zip(&x).enumerate() {
            // What rounding to f32 adds to the weight, and to the step.
            let tolerance = 1.2e-7 * x.abs() + 1e-4 * of.learning_rate;
            let error = (f64::from(got) - x).abs();
            assert!(error <= tolerance, "{name}[{i}]: got {got}, expected {x}, error {error:e}");
        }
    }
}

pub(super) fn plans(double: &Double, config: &str, tokens: usize, recompute: bool) -> TrainPlans {
    let config = ModelConfig::from_json(config).unwrap();
    let caps = double.capabilities();
    let params = Params::new(Architecture::of(&config), caps.limits.shard_bytes()).unwrap();
    let choices = TrainChoices { tokens, recompute, ..TrainChoices::default() };
    train_plans(caps, &params, choices).unwrap()
}

/// A GPU on which these products were measured to be fastest by a tile, with K in this many parts where it is long
/// enough.
pub(super) fn tuned(
    gpu: &Double,
    products: Vec<LinearShape>,
    tile: LinearTile,
    splits: usize,
) -> Rc<Double> {
    let mut caps = gpu.capabilities().clone();
    let measured =
        |shape| TunedProduct { shape, tile, splits, nanoseconds: 1, estimated_nanoseconds: 1 };
    caps.tuned = products.into_iter().map(measured).collect();
    Double::new(caps)
}

pub(super) fn trains(double: &Rc<Double>, config: &str, recompute: bool, lengths: [usize; 2]) {
    let pair = Pair::new(double, config);
    let options = TrainerOptions {
        tokens_per_step: lengths[0],
        gradient_accumulation: 2,
        recompute,
        max_grad_norm: Some(0.05),
        ..TrainerOptions::default()
    };
    let trainer = block_on(Trainer::create(&pair.model, options.clone(), NO_PROGRESS)).unwrap();
    let (loss, gradients) = expected(&pair, [3, 5], lengths);
    let step =
        |i: usize| block_on(trainer.step(&batch(&pair.config, [3, 5][i], lengths[i]))).unwrap();
    step(0);
    let metrics = step(1);
    assert_close("loss", &[metrics.loss], &[loss], 0.0, 2e-6);
    let norm = gradients.values().flatten().map(|g| g * g).sum::<f64>().sqrt();
    assert_close("norm", &[metrics.grad_norm.unwrap()], &[norm], 0.0, 1e-5);
    let mut had = Tensors::<f64>::new();
    for (index, (name, _)) in pair.model.tensors().iter().enumerate() {
        let got = block_on(trainer.read_gradient(index)).unwrap();
        assert_close(name, &got, &gradients[name], 1e-7, 2e-5);
        had.insert(name.clone(), got.into_iter().map(f64::from).collect());
    }
    held_to_adamw(&pair, &had, &metrics, &options);
}

#[test]
fn a_step_has_the_twins_loss_gradients_and_weights() {
    for config in [TIED, UNTIED, WINDOWED, NORMED, BIASED, LEARNED, ALTERNATING, TWO_TABLES] {
        trains(&Double::floor(), config, false, [40, 23]);
    }
    for config in [UNSCALED, PARALLEL] {
        trains(&Double::floor(), config, false, [40, 23]);
    }
}

#[test]
fn recomputed_activations_give_the_same() {
    for config in [TIED, NORMED, BIASED, LEARNED, ALTERNATING, PARALLEL] {
        trains(&software(), config, true, [40, 23]);
    }
}

#[test]
fn kernels_for_hardware_give_the_same() {
    for config in [UNTIED, NORMED, BIASED, LEARNED, ALTERNATING, PARALLEL] {
        trains(&named("NVIDIA"), config, false, [40, 23]);
    }
}

/// Attention's backward pass has room for 20 tiles of each of these heads.
fn cramped(heads: u64) -> (Rc<Double>, String) {
    let config = format!(
        r#"{{"vocab_size":61,"hidden_size":32,"intermediate_size":48,"num_hidden_layers":1,"head_dim":64,
        "num_attention_heads":{heads},"num_key_value_heads":{},"initializer_range":0.1,
        "max_position_embeddings":1024}}"#,
        heads / 2
    );
    let mut caps = named("NVIDIA").capabilities().clone();
    caps.limits.max_storage_buffer_binding_size = (heads * 20) << 16;
    (Double::new(caps), config)
}

/// A batch of documents of these lengths.
fn cut(lengths: &[usize]) -> Batch {
    let tokens: usize = lengths.iter().sum();
    let mut documents = vec![];
    for &length in lengths {
        documents.extend(std::iter::repeat_n(documents.len() as u32, length));
    }
    let words = |seed| integers(seed, tokens, 61);
    Batch::new(words(11), words(12), Some(documents))
}

/// Where attention's backward pass has no room for all tiles of a document, a batch of long ones has another plan, and
/// accumulates into the same gradients: with few heads by no products, with many by those of half of the heads at a
/// time.
#[test]
fn batches_of_short_and_long_documents_give_the_same() {
    for (heads, turns) in [(2, 0), (32, 2)] {
        short_and_long_documents(heads, turns);
    }
}

fn short_and_long_documents(heads: u64, turns: usize) {
    let (double, config) = cramped(heads);
    let pair = Pair::new(&double, &config);
    let options = TrainerOptions {
        tokens_per_step: 768,
        gradient_accumulation: 2,
        ..TrainerOptions::default()
    };
    let trainer = block_on(Trainer::create(&pair.model, options, NO_PROGRESS)).unwrap();
    let scores = |rows: &[PlanRow]| {
        let is = |row: &PlanRow| row.kernel == "attention_backward_scores";
        (rows.iter().position(is), rows.iter().filter(|row| is(row)).count())
    };
    let text = |row: usize| trainer.wgsl(row as f64).unwrap();
    let mut listed = None;
    // The first fills 12 tiles, the second would 21.
    let batches = [cut(&[200, 1, 333, 90]), cut(&[768])];
    let (mut loss, mut sums) = (0.0, Tensors::<f64>::new());
    for (batch, count) in batches.iter().zip([1, turns]) {
        loss = block_on(trainer.step(batch)).unwrap().loss;
        // A row is one of the plan as it was listed, whatever was trained since.
        assert!(listed.is_none_or(|row| text(row).contains("attention_backward_scores")));
        let (row, rows) = scores(&trainer.plan().unwrap());
        assert_eq!(rows, count, "{heads} heads, {} tokens", batch.len());
        listed = row;
        let share = batch.len() as f64 / (batches[0].len() + batches[1].len()) as f64;
        for (name, gradient) in pair.reference().loss_and_gradients(batch).1 {
            let sum = sums.entry(name).or_insert_with(|| vec![0.0; gradient.len()]);
            sum.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += share * g);
        }
    }
    assert!(loss.is_finite());
    for (index, (name, _)) in pair.model.tensors().iter().enumerate() {
        let got = block_on(trainer.read_gradient(index)).unwrap();
        assert_close(name, &got, &sums[name], 1e-7, 2e-5);
    }
}

/// A trainer reuses the memory of a batch's words. The next batch does not see them.
#[test]
fn a_batch_gives_the_same_behind_longer_ones() {
    let (double, config) = cramped(2);
    let pair = Pair::new(&double, &config);
    // No weight moves by so little.
    let options =
        TrainerOptions { tokens_per_step: 768, learning_rate: 1e-30, ..TrainerOptions::default() };
    let gradients = |batches: &[Batch]| {
        let trainer = block_on(Trainer::create(&pair.model, options.clone(), NO_PROGRESS)).unwrap();
        for batch in batches {
            block_on(trainer.step(batch)).unwrap();
        }
        let all = 0..pair.model.tensors().len();
        all.map(|index| block_on(trainer.read_gradient(index)).unwrap()).collect::<Vec<_>>()
    };
    let short = cut(&[7, 150]);
    let alone = gradients(std::slice::from_ref(&short));
    assert!(alone.iter().flatten().any(|&gradient| gradient != 0.0));
    assert_eq!(gradients(&[cut(&[200, 1, 333, 90]), cut(&[768]), short]), alone);
}

/// Products of 256 tokens by 128 columns split K.
#[test]
fn split_products_give_the_same() {
    let wide = r#"{"vocab_size":64,"hidden_size":128,"intermediate_size":192,
        "num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":1,"head_dim":64,
        "initializer_range":0.05,"max_position_embeddings":512}"#;
    let double = named("NVIDIA");
    let pair = Pair::new(&double, wide);
    let options = TrainerOptions { tokens_per_step: 256, ..TrainerOptions::default() };
    let trainer = block_on(Trainer::create(&pair.model, options, NO_PROGRESS)).unwrap();
    let plan = trainer.plan().unwrap();
    assert!(plan.iter().any(|row| row.variant.contains("parts of K")), "no product is split");
    let batch = batch(&pair.config, 9, 100);
    let (loss, gradients) = pair.reference().loss_and_gradients(&batch);
    let metrics = block_on(trainer.step(&batch)).unwrap();
    assert_close("loss", &[metrics.loss], &[loss], 0.0, 2e-6);
    for (index, (name, _)) in pair.model.tensors().iter().enumerate() {
        let got = block_on(trainer.read_gradient(index)).unwrap();
        assert_close(name, &got, &gradients[name], 1e-7, 2e-5);
    }
}

#[test]
fn logits_and_loss_of_a_prompt_are_the_twins() {
    for (double, config) in [
        (Double::floor(), TIED),
        (software(), WINDOWED),
        (named("NVIDIA"), NORMED),
        (named("NVIDIA"), BIASED),
        (named("NVIDIA"), LEARNED),
        (software(), UNSCALED),
        (named("NVIDIA"), PARALLEL),
        (named("NVIDIA"), ALTERNATING),
        (software(), TWO_TABLES),
    ] {
        let pair = Pair::new(&double, config);
        for tokens in [1, 33] {
            let prompt = integers(11, tokens, pair.config.vocab_size as u32);
            let options = InferenceOptions::default();
            let got = block_on(pair.model.logits(&prompt, options, NO_PROGRESS)).unwrap();
            let expected = pair.reference().logits(&prompt, &vec![0; tokens]);
            assert_close("logits", &got, &expected, 1e-5, 1e-5);
        }
    }
}

/// The worst difference in nats of greedy tokens and their log-probabilities from the twin's.
fn continued(pair: &Pair, prompt: &[u32], cache: KvCacheFormat, weights: WeightFormat) -> f64 {
    let options = GenerateOptions {
        max_tokens: 20,
        temperature: 0.0,
        kv_cache: cache,
        weights,
        ..GenerateOptions::default()
    };
    let drawn = block_on(async {
        let mut generation = Generation::start(&pair.model, prompt, options).await.unwrap();
        let mut drawn = vec![];
        loop {
            match generation.next().await.unwrap() {
                some if some.is_empty() => break drawn,
                some => drawn.extend(some),
            }
        }
    });
    assert_eq!(drawn.len(), 20);
    let mut tokens = prompt.to_vec();
    tokens.extend(drawn.iter().map(|d| d.token));
    let all = pair.reference().logits(&tokens, &vec![0; tokens.len()]);
    let words = pair.config.vocab_size;
    let off = drawn.iter().enumerate().map(|(i, d)| {
        let row = &all[(prompt.len() + i - 1) * words..][..words];
        let best = row.iter().copied().fold(f64::MIN, f64::max);
        let own = row[d.token as usize];
        (best - own).max((f64::from(d.logprob) - (own - log_sum_exp(row))).abs())
    });
    off.fold(0.0, f64::max)
}

#[test]
fn decoded_tokens_are_the_twins_in_each_cache() {
    for (cache, nats) in
        [(KvCacheFormat::F32, 1e-4), (KvCacheFormat::F16, 0.015), (KvCacheFormat::Int8, 0.2)]
    {
        for (double, config) in [
            (Double::floor(), TIED),
            (named("NVIDIA"), WINDOWED),
            (software(), NORMED),
            (named("NVIDIA"), BIASED),
            (software(), LEARNED),
            (named("NVIDIA"), LEARNED),
            (named("NVIDIA"), UNSCALED),
            (software(), PARALLEL),
            (named("NVIDIA"), PARALLEL),
            (named("NVIDIA"), ALTERNATING),
            (named("NVIDIA"), TWO_TABLES),
            (named("NVIDIA"), ALTERNATING),
        ] {
            let pair = Pair::new(&double, config);
            let prompt = integers(13, 9, pair.config.vocab_size as u32);
            let off = continued(&pair, &prompt, cache, WeightFormat::F32);
            assert!(off <= nats, "{off} nats with a cache in {}", cache.name());
        }
    }
}

/// A text past 256 tokens, so that its keys are read in ranges.
#[test]
fn decoding_behind_a_long_text_is_the_twins() {
    let pair = Pair::new(&named("NVIDIA"), UNTIED);
    let prompt = integers(17, 300, pair.config.vocab_size as u32);
    let off = continued(&pair, &prompt, KvCacheFormat::F32, WeightFormat::F32);
    assert!(off <= 1e-4, "{off} nats");
}

#[test]
fn decoded_tokens_are_those_of_the_packed_weights() {
    for format in [WeightFormat::F16, WeightFormat::Int8, WeightFormat::Int4] {
        for double in [Double::floor(), software()] {
            let mut pair = Pair::new(&double, UNTIED);
            for (name, shape) in pair.model.tensors() {
                // The table of embeddings is looked up, not multiplied.
                if shape.len() == 2 && name != "model.embed_tokens.weight" {
                    let x: Vec<f32> = pair.weights[&name].iter().map(|x| *x as f32).collect();
                    let words = pack_weights_forward(format, &x);
                    pair.weights.insert(name, unpack_weights_forward(format, &words, x.len()));
                }
            }
            let prompt = integers(19, 9, pair.config.vocab_size as u32);
            let off = continued(&pair, &prompt, KvCacheFormat::F32, format);
            assert!(off <= 1e-4, "{off} nats in {}", format.name());
        }
    }
}
