//! Adapters on a frozen base, on the double: held to the graph's twin in f64.

use super::Double;
use super::tests::{
    ALTERNATING, BIASED, NORMED, Pair, TIED, UNTIED, WINDOWED, batch, header_of, integers, named,
    software, weights,
};
use crate::arch::{Architecture, WeightId};
use crate::caps::{Capabilities, Target};
use crate::config::{DropoutRates, LoraConfig};
use crate::data::{Batch, Dataset, DatasetOptions};
use crate::error::{ErrorCode, Result};
use crate::gpu::Gpu;
use crate::kernels::{KvCacheFormat, WeightFormat};
use crate::random::split;
use crate::session::{
    Adapter, EstimateOptions, GenerateOptions, Generation, InferenceOptions, Model, ModelLoader,
    NO_PROGRESS, Resume, Snapshot, TextOptions, Trainer, TrainerOptions, estimate,
};
use crate::twins::Masks;
use crate::twins::check::assert_close;
use crate::twins::model::{Network, Tensors, random_adapter};
use crate::twins::{pack_weights_forward, unpack_weights_forward};
use pollster::block_on;
use std::rc::Rc;

/// Some stacked modules, and some of one layer alone.
const SOME: [&str; 4] = ["k_proj", "up_proj", "0.mlp.down_proj", "o_proj"];
pub(super) const ALL: [&str; 1] = ["all-linear"];

pub(super) fn lora(targets: &[&str], rank: usize) -> LoraConfig {
    let targets = targets.iter().map(|&target| target.into()).collect();
    LoraConfig { rank, alpha: 3.0, targets, seed: 11, ..LoraConfig::default() }
}

/// An adapter on a pair's model, with random A and B, and the weights of both.
pub(super) struct Adapted {
    pub adapter: Rc<Adapter>,
    pub architecture: Architecture,
    pub weights: Tensors<f64>,
}

impl Adapted {
    pub fn new(pair: &Pair, lora: LoraConfig, seed: u64) -> Self {
        let architecture = Architecture::of(&pair.config).adapted(&lora).unwrap();
        let adapter = block_on(Adapter::create(&pair.model, lora, NO_PROGRESS)).unwrap();
        let own = random_adapter::<f32>(&architecture, seed);
        fill(&adapter, |name| bytemuck::cast_slice(&own[name]).to_vec());
        let mut weights = pair.weights.clone();
        let wide = |x: &Vec<f32>| x.iter().copied().map(f64::from).collect();
        weights.extend(own.iter().map(|(name, x)| (name.clone(), wide(x))));
        Self { adapter, architecture, weights }
    }

    pub fn network(&self) -> Network<'_, f64> {
        Network { architecture: &self.architecture, weights: &self.weights }
    }
}

/// Loads an adapter's tensors as those of a file are.
pub(super) fn fill(adapter: &Adapter, bytes: impl Fn(&str) -> Vec<u8>) {
    let model = adapter.model();
    let mut loader = ModelLoader::of_adapter(adapter);
    let (header, length) = header_of(&model.save_header());
    loader.add_file("adapter_model.safetensors", &header, length).unwrap();
    for (name, _) in model.tensors() {
        loader.set_piece(&name, 0, &bytes(&name)).unwrap();
    }
    block_on(loader.finish()).unwrap();
}

/// Gives an adapter the weights of another, which may be on another device.
pub(super) fn fill_from(adapter: &Adapter, other: &Adapter) {
    let tensors = other.model().tensors();
    fill(adapter, |name| {
        let index = tensors.iter().position(|(own, _)| own == name).unwrap();
        block_on(other.model().read_tensor(index)).unwrap()
    });
}

pub(super) fn trains(double: &Rc<Double>, config: &str, lora: LoraConfig, recompute: bool) {
    let pair = Pair::new(double, config);
    let base = weights(&pair.model);
    trains_on(&pair, lora, recompute);
    assert!(weights(&pair.model) == base, "the base has changed");
}

/// Two micro-steps, with a seed of two words.
pub(super) fn masked() -> TrainerOptions {
    TrainerOptions {
        tokens_per_step: 40,
        gradient_accumulation: 2,
        seed: 9 << 32 | 4,
        ..TrainerOptions::default()
    }
}

pub(super) fn trains_on(pair: &Pair, lora: LoraConfig, recompute: bool) {
    let adapted = Adapted::new(pair, lora, 5);
    let model = adapted.adapter.model();
    let options = TrainerOptions { recompute, ..masked() };
    let trained = |weight| adapted.architecture.is_low_rank(weight);
    steps_as_the_twin(model, &adapted.network(), &trained, options, pair.config.dropout);
    for (index, (name, _)) in model.tensors().iter().enumerate() {
        let before = &adapted.weights[name];
        let bytes = block_on(model.read_tensor(index)).unwrap();
        let after: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes);
        assert!(after.iter().zip(before).any(|(a, b)| f64::from(*a) != *b), "{name} has not moved");
    }
}

/// Holds two micro-steps to the graph's twin in f64 with the same masks, at these rates of the model's dropout.
pub(super) fn steps_as_the_twin(
    model: &Rc<Model>,
    network: &Network<'_, f64>,
    trained: &dyn Fn(WeightId) -> bool,
    options: TrainerOptions,
    rates: DropoutRates,
) {
    let seed = split(options.seed);
    let trainer = block_on(Trainer::create(model, options, NO_PROGRESS)).unwrap();
    let batches = [(3, 40), (5, 23)].map(|(seed, tokens)| batch(model.config(), seed, tokens));
    let counted: f64 = batches.iter().map(|batch| batch.counted() as f64).sum();
    let (mut loss, mut expected) = (0.0, Tensors::<f64>::new());
    for (micro_step, batch) in (0..).zip(&batches) {
        let share = batch.counted() as f64 / counted;
        let masks = Some(Masks { seed, micro_step });
        let (part, gradients) = network.loss_and_gradients_with(batch, trained, rates, masks);
        loss += share * part;
        for (name, gradient) in gradients {
            let sum = expected.entry(name).or_insert_with(|| vec![0.0; gradient.len()]);
            sum.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += share * g);
        }
    }
    block_on(trainer.step(&batches[0])).unwrap();
    let metrics = block_on(trainer.step(&batches[1])).unwrap();
    assert_close("loss", &[metrics.loss], &[loss], 0.0, 2e-6);
    let norm = expected.values().flatten().map(|g| g * g).sum::<f64>().sqrt();
    assert_close("norm", &[metrics.grad_norm.unwrap()], &[norm], 0.0, 1e-5);
    let tensors = model.tensors();
    assert_eq!(tensors.len(), expected.len());
    for (index, (name, _)) in tensors.iter().enumerate() {
        let got = block_on(trainer.read_gradient(index)).unwrap();
        assert_close(name, &got, &expected[name], 1e-7, 2e-5);
    }
}

#[test]
fn a_step_has_the_twins_loss_and_gradients_and_leaves_the_base() {
    for (config, targets, rank) in [
        (TIED, &ALL[..], 3),
        (UNTIED, &SOME[..], 8),
        (WINDOWED, &ALL[..], 4),
        (NORMED, &SOME[..], 4),
        (BIASED, &ALL[..], 5),
        (ALTERNATING, &ALL[..], 4),
    ] {
        trains(&Double::floor(), config, lora(targets, rank), false);
    }
}

#[test]
fn recomputed_activations_give_the_same() {
    trains(&software(), TIED, lora(&ALL, 3), true);
    trains(&software(), NORMED, lora(&SOME, 4), true);
}

#[test]
fn kernels_for_hardware_give_the_same() {
    trains(&named("NVIDIA"), UNTIED, lora(&ALL, 4), false);
    let rs_lora = LoraConfig { rs_lora: true, ..lora(&SOME, 4) };
    trains(&named("NVIDIA"), BIASED, rs_lora, false);
}

/// A and B of 96 rows and columns, some of them larger than a binding, and so cut by rows.
#[test]
fn matrices_in_several_bindings_give_the_same() {
    let config = UNTIED.replace(r#""intermediate_size":64"#, r#""intermediate_size":128"#);
    let mut caps = Capabilities::floor(Target::Native);
    // Short rows of three modules fit.
    caps.limits.max_storage_buffer_binding_size = 48_640;
    caps.limits.max_buffer_size = 48_640;
    let double = Double::new(caps);
    let pair = Pair::new(&double, &config);
    let adapter = block_on(Adapter::create(&pair.model, lora(&ALL, 96), NO_PROGRESS)).unwrap();
    let layout = adapter.model().layout();
    let low = layout.architecture.low_rank.iter();
    let cut =
        low.filter(|low| [low.a, low.b].iter().any(|&id| layout.matrices[id].parts.len() == 2));
    assert_eq!(cut.count(), 2 * 3, "in each layer B of gate and up, and A of down");
    trains(&double, &config, lora(&ALL, 96), false);
}

/// A scale of one, and others, are part of the products.
#[test]
fn a_scale_of_one_gives_the_same() {
    trains(&Double::floor(), TIED, LoraConfig { alpha: 3.0, ..lora(&ALL, 3) }, false);
}

#[test]
fn gradients_and_moments_are_the_adapters_alone() {
    let pair = Pair::new(&Double::floor(), TIED);
    let adapter =
        block_on(Adapter::create(&pair.model, lora(&["q_proj"], 2), NO_PROGRESS)).unwrap();
    let own = adapter.model().layout().bytes();
    assert!(own > 0 && own < pair.model.layout().bytes() / 4);
    let trainer = |model| block_on(Trainer::create(model, TrainerOptions::default(), NO_PROGRESS));
    let before = adapter.model().gpu_bytes();
    let trainer = trainer(adapter.model()).unwrap();
    assert_eq!(trainer.layout().bytes(), own);
    let sets: Vec<_> =
        trainer.plan().unwrap().into_iter().filter(|r| r.kernel == "adamw_forward").collect();
    assert_eq!(sets.len(), 1);
    assert!(adapter.model().gpu_bytes() > before + 3 * own);
    assert_eq!(trainer.optimizer_tensors().len(), 2 * adapter.model().tensors().len());
}

#[test]
fn an_estimate_is_what_is_allocated() {
    let double = Double::floor();
    let pair = Pair::new(&double, NORMED);
    let lora = lora(&SOME, 4);
    let options = EstimateOptions {
        weights: WeightFormat::F32,
        adapter: Some(lora.clone()),
        trainer: Some(options()),
        generate: Some(TextOptions { tokens: 40, ..TextOptions::default() }),
    };
    let caps = Gpu::capabilities(&*double);
    let estimated = estimate(&pair.config, &options, Some(caps)).unwrap();
    let adapter = block_on(Adapter::create(&pair.model, lora, NO_PROGRESS)).unwrap();
    let model = adapter.model();
    let _trainer = block_on(Trainer::create(model, options.trainer.unwrap(), NO_PROGRESS)).unwrap();
    block_on(model.logits(&[1; 40], InferenceOptions::default(), NO_PROGRESS)).unwrap();
    assert_eq!(pair.model.gpu_bytes() + model.gpu_bytes(), estimated.bytes.total());
    assert_eq!(estimated.parameters, pair.model.parameter_count());
    assert_eq!(estimated.trainable, model.parameter_count());
    let bad = EstimateOptions {
        adapter: Some(LoraConfig { rank: 0, ..Default::default() }),
        ..Default::default()
    };
    assert!(estimate(&pair.config, &bad, None).unwrap_err().message.contains("rank is 0"));
}

/// The worst difference in nats of greedy tokens and their log-probabilities from a network's.
pub(super) fn continued(
    model: &Rc<Model>,
    network: &Network<f64>,
    options: GenerateOptions,
) -> f64 {
    let prompt = integers(13, 9, model.config().vocab_size as u32);
    let options = GenerateOptions { max_tokens: 12, temperature: 0.0, ..options };
    let drawn = block_on(async {
        let mut generation = Generation::start(model, &prompt, options).await.unwrap();
        let mut drawn = vec![];
        loop {
            match generation.next().await.unwrap() {
                some if some.is_empty() => break drawn,
                some => drawn.extend(some),
            }
        }
    });
    assert_eq!(drawn.len(), 12);
    let mut tokens = prompt.clone();
    tokens.extend(drawn.iter().map(|d| d.token));
    let all = network.logits(&tokens, &vec![0; tokens.len()]);
    let words = model.config().vocab_size;
    let off = drawn.iter().enumerate().map(|(i, d)| {
        let row = &all[(prompt.len() + i - 1) * words..][..words];
        let best = row.iter().copied().fold(f64::MIN, f64::max);
        let own = row[d.token as usize];
        let logprob = own - crate::twins::log_sum_exp(row);
        (best - own).max((f64::from(d.logprob) - logprob).abs())
    });
    off.fold(0.0, f64::max)
}

#[test]
fn base_and_two_adapters_decode_in_turn() {
    for (double, config) in [
        (Double::floor(), TIED),
        (named("NVIDIA"), UNTIED),
        (software(), NORMED),
        (named("NVIDIA"), BIASED),
    ] {
        let pair = Pair::new(&double, config);
        let all = Adapted::new(&pair, lora(&ALL, 3), 5);
        let some = Adapted::new(&pair, lora(&SOME, 4), 6);
        let base = Architecture::of(&pair.config);
        let base = Network { architecture: &base, weights: &pair.weights };
        for _ in 0..2 {
            for (model, network) in [
                (&pair.model, &base),
                (all.adapter.model(), &all.network()),
                (some.adapter.model(), &some.network()),
            ] {
                let off = continued(model, network, GenerateOptions::default());
                assert!(off <= 1e-4, "{off} nats");
            }
        }
        let tokens = integers(23, 20, 61);
        let text = Batch::next_tokens(tokens.clone());
        let loss =
            all.adapter.model().loss(&tokens, None, InferenceOptions::default(), NO_PROGRESS);
        assert_close("loss", &[block_on(loss).unwrap()], &[all.network().loss(&text)], 0.0, 2e-6);
    }
}

/// A packed base, and an adapter that stays as it is.
#[test]
fn an_adapter_is_not_packed_with_its_base() {
    for format in [WeightFormat::Int8, WeightFormat::Int4] {
        let mut pair = Pair::new(&Double::floor(), UNTIED);
        for (name, shape) in pair.model.tensors() {
            if shape.len() == 2 && name != "model.embed_tokens.weight" {
                let x: Vec<f32> = pair.weights[&name].iter().map(|x| *x as f32).collect();
                let words = pack_weights_forward(format, &x);
                pair.weights.insert(name, unpack_weights_forward(format, &words, x.len()));
            }
        }
        // With rank 32, rows could be packed.
        let adapted = Adapted::new(&pair, lora(&ALL, 32), 5);
        let options = GenerateOptions { weights: format, ..GenerateOptions::default() };
        let off = continued(adapted.adapter.model(), &adapted.network(), options);
        assert!(off <= 1e-4, "{off} nats on a base in {}", format.name());
    }
}

#[test]
fn a_new_adapter_changes_nothing() {
    let pair = Pair::new(&Double::floor(), NORMED);
    let adapter = block_on(Adapter::create(&pair.model, lora(&ALL, 4), NO_PROGRESS)).unwrap();
    let tokens = integers(7, 30, 61);
    let logits = |model: &Model| {
        block_on(model.logits(&tokens, InferenceOptions::default(), NO_PROGRESS)).unwrap()
    };
    assert_eq!(logits(adapter.model()), logits(&pair.model));
    let tensors = adapter.model().tensors();
    for (index, (name, shape)) in tensors.iter().enumerate() {
        let bytes = block_on(adapter.model().read_tensor(index)).unwrap();
        let values: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes);
        if name.contains("lora_B") {
            assert!(values.iter().all(|x| *x == 0.0), "{name}");
            continue;
        }
        let bound = 1.0 / (shape[1] as f32).sqrt();
        let most = values.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        assert!(most <= bound && most > 0.8 * bound, "{name}: {most} of {bound}");
    }
    // A seed gives the same bits again, and another seed gives others.
    let saved = weights(adapter.model());
    let again = |seed| {
        let lora = LoraConfig { seed, ..lora(&ALL, 4) };
        weights(block_on(Adapter::create(&pair.model, lora, NO_PROGRESS)).unwrap().model())
    };
    assert!(again(11) == saved && again(12) != saved);
}

#[test]
fn a_merge_gives_what_base_and_adapter_gave() {
    for config in [TIED, NORMED] {
        let pair = Pair::new(&Double::floor(), config);
        let adapted = Adapted::new(&pair, lora(&SOME, 3), 5);
        let tokens = integers(7, 30, 61);
        let options = InferenceOptions::default();
        let before = block_on(pair.model.logits(&tokens, options, NO_PROGRESS)).unwrap();
        block_on(adapted.adapter.merge(NO_PROGRESS)).unwrap();
        let merged = block_on(pair.model.logits(&tokens, options, NO_PROGRESS)).unwrap();
        let expected = adapted.network().logits(&tokens, &vec![0; tokens.len()]);
        assert_close("logits", &merged, &expected, 1e-5, 1e-5);
        assert_ne!(before, merged);
        let again = block_on(adapted.adapter.merge(NO_PROGRESS)).unwrap_err();
        assert_eq!(again.code, ErrorCode::Freed);
        assert!(again.message.contains("merged into its base"), "{again}");
        assert_eq!(block_on(pair.model.logits(&tokens, options, NO_PROGRESS)).unwrap(), merged);
    }
}

#[test]
fn what_is_freed_is_told_apart() {
    let pair = Pair::new(&Double::floor(), TIED);
    let create = |lora| block_on(Adapter::create(&pair.model, lora, NO_PROGRESS));
    let [first, second] = [create(lora(&ALL, 3)).unwrap(), create(lora(&SOME, 2)).unwrap()];
    let trainer =
        block_on(Trainer::create(second.model(), TrainerOptions::default(), NO_PROGRESS)).unwrap();
    let logits = |model: &Model| {
        block_on(model.logits(&[1, 2, 3], InferenceOptions::default(), NO_PROGRESS))
    };
    logits(second.model()).unwrap();
    first.free();
    let error = logits(first.model()).unwrap_err();
    assert!(error.code == ErrorCode::Freed && error.message.contains("this adapter"), "{error}");
    logits(second.model()).unwrap();
    logits(&pair.model).unwrap();
    pair.model.free();
    for error in [
        logits(second.model()).unwrap_err(),
        block_on(trainer.step(&batch(&pair.config, 3, 20))).unwrap_err(),
        block_on(second.merge(NO_PROGRESS)).unwrap_err(),
        create(lora(&ALL, 3)).unwrap_err(),
    ] {
        assert!(error.code == ErrorCode::Freed && error.message.contains("model"), "{error}");
    }
}

#[test]
fn what_cannot_be_made_is_refused_and_changes_nothing() {
    let double = Double::floor();
    let pair = Pair::new(&double, TIED);
    let held = Gpu::counters(&*double).gpu_bytes;
    let refused = |model: &Rc<Model>, lora| {
        let error = block_on(Adapter::create(model, lora, NO_PROGRESS)).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidOptions);
        error.message
    };
    assert!(refused(&pair.model, lora(&ALL, 0)).contains("rank is 0"));
    assert!(refused(&pair.model, lora(&["wrong_proj"], 2)).contains("q_proj"));
    assert_eq!(Gpu::counters(&*double).gpu_bytes, held);
    let adapter = block_on(Adapter::create(&pair.model, lora(&ALL, 2), NO_PROGRESS)).unwrap();
    assert!(refused(adapter.model(), lora(&ALL, 2)).contains("on its base"));
    drop(adapter);
    assert_eq!(Gpu::counters(&*double).gpu_bytes, held, "an adapter is given back");
}

pub(super) fn options() -> TrainerOptions {
    TrainerOptions {
        learning_rate: 1e-2,
        warmup_steps: 2,
        total_steps: Some(30),
        gradient_accumulation: 2,
        tokens_per_step: 32,
        ..TrainerOptions::default()
    }
}

pub(super) fn steps(trainer: &Rc<Trainer>, count: usize) -> Vec<f64> {
    let options =
        DatasetOptions { sequence_length: Some(15), seed: 3, ..DatasetOptions::default() };
    let tokens = (0..400).map(|i: u32| (i % 17 * 7 + i / 100) % 60).collect();
    let dataset = Dataset::from_tokens(tokens, options).unwrap();
    let step = |_| block_on(trainer.step_dataset(&dataset, &|| false)).unwrap().loss;
    (0..count).map(step).collect()
}

/// Another adapter's trainer that goes on from where this one is.
pub(super) async fn resumed(trainer: &Trainer, onto: &Adapter) -> Result<Rc<Trainer>> {
    let state = trainer.state().await?;
    let mut resume = Resume::of_adapter(onto, &state)?;
    let tensors = trainer.optimizer_tensors();
    let (header, length) = header_of(&trainer.save_header());
    resume.add_file("optimizer.safetensors", &header, length)?;
    resume.allocate(onto.model(), Box::new(|_, _, _| false))?.await?;
    for (index, (name, _)) in tensors.iter().enumerate() {
        let bytes = trainer.read_optimizer_tensor(index, None).await?;
        resume.set_piece(name, 0, &bytes)?;
    }
    resume.finish().await
}

/// What a state says of the base.
fn base_of(state: &str) -> u64 {
    serde_json::from_str::<serde_json::Value>(state).unwrap()["base"].as_u64().unwrap()
}

#[test]
fn a_run_is_not_resumed_on_another_base() {
    let pair = Pair::new(&Double::floor(), TIED);
    let create =
        |base: &Rc<Model>| block_on(Adapter::create(base, lora(&ALL, 2), NO_PROGRESS)).unwrap();
    let first = create(&pair.model);
    let trainer = block_on(Trainer::create(first.model(), options(), NO_PROGRESS)).unwrap();
    steps(&trainer, 2);
    let other = block_on(Model::create(pair.model.gpu(), pair.config.clone(), 3, NO_PROGRESS));
    let refused = block_on(resumed(&trainer, &create(&other.unwrap()))).unwrap_err();
    assert_eq!(refused.code, ErrorCode::InvalidCheckpoint);
    assert!(refused.message.contains("other weights"), "{refused}");
    block_on(resumed(&trainer, &create(&pair.model))).unwrap();
    // A merge makes it another base.
    let merged = Adapted::new(&pair, lora(&["q_proj"], 1), 5);
    block_on(merged.adapter.merge(NO_PROGRESS)).unwrap();
    let saved = block_on(trainer.state()).unwrap();
    let unmerged = Pair::new(&Double::floor(), TIED);
    let onto = create(&unmerged.model);
    let fresh = block_on(Trainer::create(onto.model(), options(), NO_PROGRESS)).unwrap();
    assert_ne!(base_of(&saved), base_of(&block_on(fresh.state()).unwrap()));
}

#[test]
fn a_resumed_adapter_goes_on_to_the_bit() {
    let create =
        |pair: &Pair| block_on(Adapter::create(&pair.model, lora(&SOME, 4), NO_PROGRESS)).unwrap();
    let train = |adapter: &Adapter| {
        block_on(Trainer::create(adapter.model(), options(), NO_PROGRESS)).unwrap()
    };
    let pair = Pair::new(&Double::floor(), NORMED);
    let whole = create(&pair);
    let expected = steps(&train(&whole), 6);
    assert!(expected[5] < expected[0], "{expected:?}");
    let first = create(&pair);
    let trainer = train(&first);
    let before = steps(&trainer, 3);
    let snapshot = block_on(Snapshot::of_model(first.model()).unwrap()).unwrap();
    assert_eq!(snapshot.save_header(), first.model().save_header());
    let bytes = first.model().layout().parameter_count() * 4;
    assert!(block_on(snapshot.read(0..bytes)).unwrap() == weights(first.model()));
    // Onto a device of its own, over the same base.
    let elsewhere = Pair::new(&Double::floor(), NORMED);
    let second = create(&elsewhere);
    fill_from(&second, &first);
    let resumed = block_on(resumed(&trainer, &second)).unwrap();
    assert_eq!([before, steps(&resumed, 3)].concat(), expected);
    assert!(weights(second.model()) == weights(whole.model()));
}

/// What a cache of the base holds stays while an adapter trains; the adapter's own is read anew.
#[test]
fn an_adapters_steps_leave_the_bases_cache() {
    let pair = Pair::new(&Double::floor(), UNTIED);
    let adapted = Adapted::new(&pair, lora(&ALL, 4), 5);
    let versions = || [&pair.model, adapted.adapter.model()].map(|model| model.version());
    let trainer =
        block_on(Trainer::create(adapted.adapter.model(), options(), NO_PROGRESS)).unwrap();
    let before = versions();
    steps(&trainer, 1);
    let after = versions();
    assert_eq!(after[0], before[0]);
    assert!(after[1] > before[1]);
    pair.model.changed();
    assert!(versions()[1] > after[1], "a change of the base is one of what lies over it");
    let drawn = GenerateOptions { kv_cache: KvCacheFormat::F32, ..GenerateOptions::default() };
    let base = Architecture::of(&pair.config);
    let base = Network { architecture: &base, weights: &pair.weights };
    assert!(continued(&pair.model, &base, drawn) <= 1e-4);
}
