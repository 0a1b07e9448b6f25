//! Sessions on a GPU that computes nothing.

use super::decode::capture::KEPT_BYTES;
use super::fake::{Encoded, Fake};
use super::throughput::Work;
use super::{
    GenerateOptions, Generation, InferenceOptions, Inspection, MemoryBytes, Model, ModelLoader,
    NO_PROGRESS, Resume, Trainer, TrainerOptions,
};
use crate::caps::{Capabilities, Features, Target};
use crate::config::ModelConfig;
use crate::data::{Batch, Dataset, DatasetOptions};
use crate::error::ErrorCode;
use crate::gpu::Gpu;
use crate::graph::Captured;
use crate::kernels::WeightFormat;
use crate::lower::inference_plans;
use pollster::block_on;
use std::rc::Rc;

pub(super) fn config(hidden: usize, layers: usize, positions: usize) -> ModelConfig {
    ModelConfig::from_json(&format!(
        r#"{{"model_type":"llama","vocab_size":512,"hidden_size":{hidden},
            "intermediate_size":{},"num_hidden_layers":{layers},"num_attention_heads":4,
            "num_key_value_heads":2,"max_position_embeddings":{positions}}}"#,
        2 * hidden
    ))
    .unwrap()
}

pub(super) fn model(fake: &Rc<Fake>, config: ModelConfig) -> Rc<Model> {
    let gpu: Rc<dyn Gpu> = Rc::clone(fake) as Rc<dyn Gpu>;
    block_on(Model::create(&gpu, config, 1, NO_PROGRESS)).unwrap()
}

fn generated(model: &Rc<Model>, prompt: usize, options: GenerateOptions) -> usize {
    block_on(async {
        let mut generation = Generation::start(model, &vec![1; prompt], options).await.unwrap();
        let mut count = 0;
        loop {
            match generation.next().await.unwrap().len() {
                0 => return count,
                some => count += some,
            }
        }
    })
}

/// The longest submit from one on, and how many there were.
fn longest(fake: &Fake, from: usize) -> (f64, usize) {
    let submits = fake.submits.borrow();
    (submits[from..].iter().copied().fold(0.0, f64::max), submits.len() - from)
}

/// Vendors and architectures of GPUs of different classes, the first of them unknown.
const NAMES: [[&str; 2]; 4] = [["", ""], ["nvidia", ""], ["amd", "rdna-3"], ["arm", "valhall"]];

#[test]
fn submits_of_a_prompt_grow_short_on_a_slow_gpu() {
    for [vendor, architecture] in NAMES {
        let mut caps = Capabilities::floor(Target::Native);
        caps.adapter.vendor = vendor.into();
        caps.adapter.architecture = architecture.into();
        // A hundredth of the first guess: 3 GFLOP/s.
        let fake = Fake::with(caps, 3e6, 0.0);
        let model = model(&fake, config(512, 6, 4096));
        let prompt = vec![1; 2000];
        block_on(model.logits(&prompt, InferenceOptions::default(), NO_PROGRESS)).unwrap();
        let learnt = fake.submits.borrow().len();
        block_on(model.logits(&prompt, InferenceOptions::default(), NO_PROGRESS)).unwrap();
        let (longest, count) = longest(&fake, learnt);
        assert!(longest <= 90.0, "{vendor}: {longest} ms, {count} submits");
        assert!(count > 100, "{vendor}: {count} submits");
    }
}

#[test]
fn submits_of_probes_grow_short_on_a_slow_gpu() {
    for layer in [0, 5] {
        let fake = Fake::new(false, 3e6, 0.0);
        let model = model(&fake, config(512, 6, 4096));
        let text = vec![1; 2000];
        let (options, progress) = (InferenceOptions::default(), NO_PROGRESS);
        let attention = || {
            block_on(model.inspect(
                &text,
                Inspection::Attention { layer, head: 3 },
                options,
                progress,
            ))
            .unwrap()
        };
        let states = || {
            block_on(model.inspect(
                &text,
                Inspection::HiddenStates { layer: layer + 1 },
                options,
                progress,
            ))
            .unwrap()
        };
        attention();
        states();
        for (what, numbers, probe) in [
            ("attention", 2000 * 2000, &attention as &dyn Fn() -> Vec<f32>),
            ("hidden states", 2000 * 512, &states),
        ] {
            let learnt = fake.submits.borrow().len();
            assert_eq!(probe().len(), numbers);
            let (longest, count) = longest(&fake, learnt);
            assert!(longest <= 100.0, "{what} of layer {layer}: {longest} ms");
            assert!(count > 10, "{what} of layer {layer}: {count} submits");
        }
    }
}

#[test]
fn a_look_at_the_first_layer_says_how_fast_the_gpu_is() {
    let fake = Fake::new(false, 3e6, 0.0);
    let model = model(&fake, config(512, 6, 4096));
    let text = vec![1; 2000];
    let options = InferenceOptions::default();
    block_on(model.logits(&text, options, NO_PROGRESS)).unwrap();
    let learnt = predictions(&model)[0];
    block_on(model.inspect(&text, Inspection::HiddenStates { layer: 1 }, options, NO_PROGRESS))
        .unwrap();
    block_on(model.inspect(
        &text,
        Inspection::Attention { layer: 0, head: 0 },
        options,
        NO_PROGRESS,
    ))
    .unwrap();
    let after = predictions(&model)[0];
    assert!((after / learnt - 1.0).abs() < 0.2, "{after} ms after {learnt} ms");
}

#[test]
fn a_probe_is_made_once_and_freed_with_the_model() {
    let fake = Fake::new(false, 3e10, 0.0);
    let model = model(&fake, config(128, 3, 4096));
    let options = InferenceOptions::default();
    let attention = |text: usize, head| {
        block_on(model.inspect(
            &vec![1; text],
            Inspection::Attention { layer: 1, head },
            options,
            NO_PROGRESS,
        ))
        .unwrap();
        (fake.plans.borrow().len(), model.gpu_bytes())
    };
    let first = attention(20, 0);
    assert_eq!(attention(200, 3), first, "plans and bytes with another head and length");
    // 2,000 tokens take another cache, and the probe is bound to it.
    assert!(attention(2000, 3).0 > first.0);
    model.free();
    assert_eq!(fake.counters().gpu_bytes, 0);
}

#[test]
fn a_model_tells_the_bytes_that_the_device_has_allocated_for_it() {
    let fake = Fake::new(false, 3e10, 0.0);
    let model = model(&fake, config(144, 3, 500));
    let held = |what: &str| assert_eq!(model.gpu_bytes(), fake.counters().gpu_bytes, "{what}");
    held("weights");
    let options = TrainerOptions { tokens_per_step: 33, ..TrainerOptions::default() };
    let trainer = block_on(Trainer::create(&model, options, NO_PROGRESS)).unwrap();
    held("a trainer");
    let likeliest =
        GenerateOptions { max_tokens: 7, alternatives: 3, ..GenerateOptions::default() };
    generated(&model, 5, likeliest);
    held("a cache and a sampler");
    let packed = WeightFormat::Int8;
    let int8 = GenerateOptions { max_tokens: 300, weights: packed, ..GenerateOptions::default() };
    generated(&model, 5, int8);
    held("a longer cache and packed weights");
    let look = Inspection::Attention { layer: 1, head: 0 };
    block_on(model.inspect(&[1; 20], look, InferenceOptions::default(), NO_PROGRESS)).unwrap();
    held("a probe");
    trainer.free();
    held("no trainer");
    model.free();
    assert_eq!(fake.counters().gpu_bytes, 0);
}

#[test]
fn layers_and_heads_that_a_model_has_not_are_refused() {
    let fake = Fake::new(false, 3e10, 0.0);
    let model = model(&fake, config(128, 3, 64));
    let options = InferenceOptions::default();
    let refused = |got: crate::error::Result<Vec<f32>>, code, words: &str| {
        let error = got.unwrap_err();
        assert_eq!(error.code, code, "{error}");
        assert!(error.message.contains(words), "{error}");
    };
    let attention = |tokens: &[u32], [layer, head]: [usize; 2]| {
        block_on(model.inspect(tokens, Inspection::Attention { layer, head }, options, NO_PROGRESS))
    };
    let states = |layer| {
        block_on(model.inspect(&[1], Inspection::HiddenStates { layer }, options, NO_PROGRESS))
    };
    let invalid = ErrorCode::InvalidOptions;
    refused(attention(&[1], [3, 0]), invalid, "layer is 3; this model has layers 0 to 2");
    refused(attention(&[1], [0, 4]), invalid, "head is 4; this model has heads 0 to 3");
    refused(states(4), invalid, "hidden states 0 to 3");
    refused(attention(&[], [0, 0]), ErrorCode::InvalidTokens, "empty");
    // However little memory there is for what it would give.
    for length in [65, 1 << 24] {
        let text = vec![1; length];
        refused(attention(&text, [0, 0]), ErrorCode::InvalidTokens, "max_position_embeddings");
    }
    assert_eq!(attention(&[1; 64], [2, 3]).unwrap().len(), 64 * 64);
    assert_eq!(states(3).unwrap().len(), 128);
}

#[test]
fn submits_of_decoding_grow_short_on_a_slow_gpu() {
    let fake = Fake::new(false, 3e6, 0.0);
    let model = model(&fake, config(512, 6, 4096));
    let options = GenerateOptions { max_tokens: 200, ..GenerateOptions::default() };
    assert_eq!(generated(&model, 4, options.clone()), 200);
    let learnt = fake.submits.borrow().len();
    assert_eq!(generated(&model, 4, options), 200);
    // The first one reads the prompt, at a pace of its own that has been seen once.
    let (longest, count) = longest(&fake, learnt + 1);
    assert!(longest <= 101.0, "{longest} ms, {count} submits");
}

#[test]
fn a_fast_gpu_takes_a_chunk_and_eight_tokens_in_a_submit() {
    let fake = Fake::new(false, 3e10, 0.0);
    let model = model(&fake, config(128, 2, 4096));
    let before = fake.submits.borrow().len();
    let options = GenerateOptions { max_tokens: 73, ..GenerateOptions::default() };
    assert_eq!(generated(&model, 1024, options), 73);
    let (_, count) = longest(&fake, before);
    let early = 4;
    assert_eq!(
        count,
        2 + early + 8,
        "two chunks with the first token, eight tokens in {early} parts, eight times eight"
    );
}

/// The GPU decodes on while the first token is on its way, but for one who has to say something about each.
#[test]
fn tokens_are_queued_behind_a_prompt() {
    let submits_for = |options: GenerateOptions| {
        let fake = Fake::new(false, 3e10, 0.0);
        let model = model(&fake, config(128, 2, 4096));
        let before = fake.submits.borrow().len();
        block_on(async {
            let prompt = vec![1; 20];
            let mut generation = Generation::start(&model, &prompt, options).await.unwrap();
            assert_eq!(generation.next().await.unwrap().len(), 1);
        });
        fake.submits.borrow().len() - before
    };
    let of = |max_tokens| GenerateOptions { max_tokens, ..GenerateOptions::default() };
    let prompt = submits_for(of(1));
    assert_eq!(submits_for(of(100)), prompt + 8 / 2);
    assert_eq!(submits_for(of(4)), prompt + 2, "three tokens in two parts");
    assert_eq!(submits_for(GenerateOptions { stepwise: true, ..of(100) }), prompt);
    assert_eq!(submits_for(GenerateOptions { prompt_lookup: true, ..of(100) }), prompt);
}

/// A GPU with subgroups of 32.
fn with_subgroups() -> Rc<Fake> {
    let features = Features { subgroups: true, subgroup_id: true, ..Features::default() };
    let floor = Capabilities::floor(Target::Native);
    Fake::with(Capabilities { features, subgroup_size: [32, 32], ..floor }, 3e10, 0.0)
}

/// Two layers of five dispatches, the last of which writes elsewhere; the embedding, the head and the draw.
#[test]
fn a_layers_bindings_are_set_once_per_token() {
    let encoded = |max_tokens| {
        let fake = with_subgroups();
        let model = model(&fake, config(128, 2, 4096));
        let options = GenerateOptions { max_tokens, ..GenerateOptions::default() };
        assert_eq!(generated(&model, 9, options), max_tokens);
        let Encoded { dispatches, bindings, .. } = fake.encoded.get();
        (dispatches, bindings)
    };
    let (few, more) = (encoded(33), encoded(65));
    assert_eq!((more.0 - few.0, more.1 - few.1), (32 * 13, 32 * 6));
}

/// Each submit of eight tokens takes the plan of the longest of its texts.
#[test]
fn a_text_is_decoded_by_the_plan_for_its_length() {
    let run = |max_tokens| {
        let fake = with_subgroups();
        let model = model(&fake, config(128, 2, 4096));
        let before = fake.encoded.get().dispatches;
        let options = GenerateOptions { max_tokens, ..GenerateOptions::default() };
        assert_eq!(generated(&model, 900, options), max_tokens);
        let options = InferenceOptions::default();
        let plans = inference_plans(fake.capabilities(), model.layout(), 4096, options).unwrap();
        (fake.encoded.get().dispatches - before, plans)
    };
    let ((long, plans), (short, _)) = (run(301), run(1));
    assert_eq!(plans.short_context_keys, 1024);
    let [near, far, sample] = [plans.short_context.as_ref().unwrap(), &plans.decode, &plans.sample]
        .map(|plan| plan.dispatches.len());
    // 900 tokens and the first one drawn, then fifteen submits.
    let turns = (1024 - 901) / 8 * 8;
    assert_eq!(long - short, turns * near + (300 - turns) * far + 300 * sample);
}

#[test]
fn the_cache_grows_with_its_text_by_copies() {
    let fake = Fake::new(false, 3e10, 0.0);
    let model = model(&fake, config(128, 2, 65_536));
    let options = GenerateOptions { max_tokens: 60_000, ..GenerateOptions::default() };
    let before = model.gpu_bytes();
    let generation = block_on(Generation::start(&model, &[1; 100], options)).unwrap();
    let small = model.gpu_bytes() - before;
    drop(generation);
    let options = GenerateOptions { max_tokens: 800, ..GenerateOptions::default() };
    generated(&model, 100, options);
    let plans = |capacity| {
        let caps = fake.capabilities();
        let options = InferenceOptions::default();
        inference_plans(caps, model.layout(), capacity, options).unwrap()
    };
    let whole = |capacity| MemoryBytes::of_plans(model.layout(), plans(capacity).all()).cache;
    assert_eq!(model.gpu_bytes() - before - small, {
        let table = |capacity: usize| (capacity * model.config().head_dim * 4) as u64;
        whole(1024) - whole(256) + table(1024) - table(256)
    });
    // 256 rows, then 512, each with as much of the table.
    let table = (768 * model.config().head_dim * 4) as u64;
    assert_eq!(fake.copied.get(), whole(256) + whole(512) + table);
}

#[test]
fn other_options_leave_a_cache_and_its_packed_weights_alone() {
    let fake = Fake::new(false, 3e10, 0.0);
    let model = model(&fake, config(128, 2, 4096));
    let packed = GenerateOptions {
        max_tokens: 5,
        weights: WeightFormat::Int8,
        ..GenerateOptions::default()
    };
    let round = || {
        block_on(model.loss(&[1; 50], None, InferenceOptions::default(), NO_PROGRESS)).unwrap();
        generated(&model, 20, packed.clone());
        let counters = fake.counters();
        (counters.buffers, counters.gpu_bytes, fake.submits.borrow().len())
    };
    let (first, second, third) = (round(), round(), round());
    assert_eq!((first.0, first.1), (second.0, second.1));
    assert_eq!(second.2 - first.2, third.2 - second.2);
    model.changed();
    let packed_again = round();
    assert_eq!(packed_again.2 - third.2, third.2 - second.2 + 1, "packed once per version");
}

#[test]
fn the_host_is_free_between_pieces_of_initial_weights_and_tables() {
    // Each write stands for 4 ms of work.
    let fake = Fake::new(true, 3e10, 4.0);
    let model = model(&fake, config(512, 8, 1 << 17));
    block_on(model.prepare_inference(1 << 16, InferenceOptions::default())).unwrap();
    let trainer = TrainerOptions { tokens_per_step: 4096, ..TrainerOptions::default() };
    block_on(Trainer::create(&model, trainer, NO_PROGRESS)).unwrap();
    assert!(fake.longest.get() <= 50.0, "{} ms", fake.longest.get());
    assert!(fake.now() > 1000.0, "there was work of {} ms", fake.now());
}

#[test]
fn what_a_cpu_has_no_memory_for_is_refused_before_it_is_allocated() {
    let fake = Fake::new(true, 3e10, 0.0);
    let model = model(&fake, config(128, 70, 1 << 17));
    let held = fake.counters();
    let refused = |error: crate::error::Error, kind: &str| {
        assert_eq!(error.code, ErrorCode::OutOfMemory, "{error}");
        assert!(error.message.contains(kind), "{error}");
        assert_eq!(fake.counters(), held, "{error}");
    };
    let options = TrainerOptions { tokens_per_step: 60_000, ..TrainerOptions::default() };
    refused(
        block_on(Trainer::create(&model, options, NO_PROGRESS)).map(drop).unwrap_err(),
        "tokensPerStep",
    );
    let long = block_on(model.prepare_inference(1 << 17, InferenceOptions::default()));
    refused(long.map(drop).unwrap_err(), "key-value cache");
    drop(model);
    // A model for which there is room, and then another.
    let gpu: Rc<dyn Gpu> = Rc::clone(&fake) as Rc<dyn Gpu>;
    let tensor = |bytes: u64| super::Tensor::zeros(&gpu, bytes / 4, crate::kernels::Element::F32);
    let held: Vec<_> = (0..32).map(|_| tensor(128 << 20).unwrap()).collect();
    let error = tensor(128 << 20).map(drop).unwrap_err();
    assert_eq!(error.code, ErrorCode::OutOfMemory, "{error}");
    drop(held);
}

#[test]
fn what_a_budget_has_no_room_for_is_refused_before_a_file_is_asked_for() {
    let config = config(128, 4, 1 << 10);
    let weights = MemoryBytes::of_weights(
        &model(&Fake::new(false, 3e10, 0.0), config.clone()).weights.layout,
    );
    let state = r#"{"format":"tinyloom-trainer-1","options":{},
        "progress":{"step":1,"microStep":0,"counted":1,"cursor":1},
        "optimizer":[0,0,0,0],"metrics":[0,0,0,0,0,0,0,0]}"#;
    let loaded = |budget: u64| {
        let caps =
            Capabilities { memory_budget: Some(budget), ..Capabilities::floor(Target::Native) };
        let fake = Fake::with(caps, 3e10, 0.0);
        let gpu: Rc<dyn Gpu> = Rc::clone(&fake) as Rc<dyn Gpu>;
        let loader = ModelLoader::new(&gpu, config.clone());
        let resumed = loader.and_then(|loader| Resume::of_loader(&loader, state));
        assert_eq!(fake.counters().buffers, 0, "nothing is allocated");
        resumed.map(drop)
    };
    let refused = |budget, what| {
        let error = loaded(budget).unwrap_err();
        assert_eq!(error.code, ErrorCode::OutOfMemory, "{error}");
        assert!(error.message.starts_with(what), "{error}");
    };
    refused(weights.total() - 1, "the model takes");
    // The trainer's moments and gradients have to fit beside the weights, which are not there yet.
    refused(4 * weights.total(), "the trainer takes");
    loaded(1 << 40).unwrap();
}

/// Milliseconds predicted of a chunk's work, and of a token's.
fn predictions(model: &Model) -> [f64; 2] {
    let work = Work { flops: 1e9, fixed: 0.0 };
    [model.chunk_throughput.predict(work), model.token_throughput.predict(work)]
}

#[test]
fn nothing_is_learnt_from_refused_work() {
    let fake = Fake::new(false, 3e6, 0.0);
    let model = model(&fake, config(512, 6, 4096));
    let logits = || block_on(model.logits(&[1; 100], InferenceOptions::default(), NO_PROGRESS));
    logits().unwrap();
    let learnt = predictions(&model);
    fake.refuse.set(true);
    logits().unwrap_err();
    assert_eq!(predictions(&model), learnt);
    let options = GenerateOptions { max_tokens: 200, ..GenerateOptions::default() };
    let mut generation = block_on(Generation::start(&model, &[1; 4], options)).unwrap();
    (0..14).for_each(|_| drop(block_on(generation.next()).unwrap()));
    let learnt = predictions(&model)[1];
    fake.refuse.set(true);
    // The passes before the refused submit are read first, and teach something.
    let next: Vec<_> = (0..4).map(|_| block_on(generation.next())).collect();
    assert_eq!(next.iter().filter(|next| next.is_err()).count(), 1);
    let after = predictions(&model)[1];
    assert!((after / learnt - 1.0).abs() < 0.2, "{after} ms after {learnt} ms");
}

#[test]
fn nothing_is_learnt_from_a_clock_that_stands() {
    let fake = Fake::new(false, f64::INFINITY, 0.0);
    let model = model(&fake, config(128, 2, 4096));
    let guessed = predictions(&model);
    block_on(model.logits(&[1; 900], InferenceOptions::default(), NO_PROGRESS)).unwrap();
    let options = GenerateOptions { max_tokens: 100, ..GenerateOptions::default() };
    generated(&model, 4, options);
    assert_eq!(predictions(&model), guessed);
}

#[test]
fn a_short_step_says_little_of_a_full_one() {
    let fake = Fake::new(false, 3e7, 0.0);
    let model = model(&fake, config(128, 2, 4096));
    let options = TrainerOptions { tokens_per_step: 1024, ..TrainerOptions::default() };
    let trainer = block_on(Trainer::create(&model, options, NO_PROGRESS)).unwrap();
    let step = |tokens: usize| {
        let before = fake.submits.borrow().len();
        block_on(trainer.step(&Batch::next_tokens(vec![1; tokens + 1]))).unwrap();
        fake.submits.borrow().len() - before
    };
    let learnt: Vec<_> = (0..8).map(|_| step(1023)).collect();
    assert_eq!(step(1), 1);
    let after = step(1023);
    assert!(after <= learnt[7] + 1, "{after} submits after {learnt:?}");
}

#[test]
fn a_gpu_without_work_gets_a_step_piece_by_piece() {
    for (software, pieces) in [(false, (2, 1)), (true, (0, 0))] {
        let fake = Fake::new(software, 3e10, 0.0);
        let model = model(&fake, config(64, 2, 256));
        let options = TrainerOptions { tokens_per_step: 32, ..TrainerOptions::default() };
        let trainer = block_on(Trainer::create(&model, options, NO_PROGRESS)).unwrap();
        let batch = Batch::next_tokens(vec![1; 32]);
        let before = fake.encoded.get();
        let step = block_on(trainer.step(&batch));
        assert_eq!(step.unwrap().tokens, 32);
        let after = fake.encoded.get();
        assert_eq!((after.cuts - before.cuts, after.copies - before.copies), pieces);
    }
    // While a step is on its way, the GPU has work.
    let fake = Fake::new(false, 3e10, 0.0);
    let options = TrainerOptions { tokens_per_step: 32, ..TrainerOptions::default() };
    let trainer =
        block_on(Trainer::create(&model(&fake, config(64, 2, 256)), options, NO_PROGRESS));
    let trainer = trainer.unwrap();
    let starts = (0..8).map(|document| document * 33).collect();
    let text = Rc::new(vec![1; 264]);
    let dataset = Dataset::from_documents(text, starts, DatasetOptions::default()).unwrap();
    let before = fake.encoded.get();
    let ahead: Vec<_> = (0..3).map(|_| trainer.queue_dataset(&dataset).unwrap()).collect();
    let after = fake.encoded.get();
    assert_eq!((after.cuts - before.cuts, after.copies - before.copies), (2, 1));
    ahead.into_iter().for_each(|step| assert!(block_on(step).is_ok()));
}

#[test]
fn a_step_that_is_expected_to_be_long_begins_with_a_submit_of_few_dispatches() {
    let options = TrainerOptions { tokens_per_step: 32, ..TrainerOptions::default() };
    let trained = |fake: &Rc<Fake>, steps: usize| {
        let model = model(fake, config(64, 2, 256));
        let trainer = block_on(Trainer::create(&model, options.clone(), NO_PROGRESS)).unwrap();
        let step = |tokens: usize| {
            let before = fake.encoded.get().cuts;
            let metrics = block_on(trainer.step(&Batch::next_tokens(vec![1; tokens]))).unwrap();
            (metrics.milliseconds, fake.encoded.get().cuts - before)
        };
        (0..steps).for_each(|_| _ = step(32));
        [step(32), step(2)]
    };
    let [(took, _), _] = trained(&Fake::new(false, 3e10, 0.0), 1);
    for (milliseconds, cuts) in [(10.0, 2), (20.0, 3), (90.0, 3)] {
        let fake = Fake::new(false, 3e10 * took / milliseconds, 0.0);
        let [(takes, seen), (_, short)] = trained(&fake, 20);
        assert!((takes - milliseconds).abs() < 0.1, "{takes} ms instead of {milliseconds}");
        assert_eq!(seen, cuts, "cuts of a step of {milliseconds} ms");
        assert_eq!(short, 2, "cuts of a sixteenth of it");
    }
}

#[test]
fn a_step_tells_the_share_of_its_places_that_stayed_empty() {
    let text: Vec<u32> = (0..660).map(|i| i % 500).collect();
    let starts = (0..20).map(|document| document * 33).collect();
    let dataset = Dataset::from_documents(Rc::new(text), starts, DatasetOptions::default());
    let dataset = dataset.unwrap();
    for gradient_accumulation in [1, 3] {
        let model = model(&Fake::new(false, 3e10, 0.0), config(64, 1, 256));
        let options =
            TrainerOptions { tokens_per_step: 100, gradient_accumulation, ..Default::default() };
        let trainer = block_on(Trainer::create(&model, options, NO_PROGRESS)).unwrap();
        let metrics = block_on(trainer.step_dataset(&dataset, &|| false)).unwrap();
        // Three documents with 32 inputs each.
        assert_eq!(metrics.tokens, 96 * gradient_accumulation as usize);
        assert!((metrics.unfilled - 0.04).abs() < 1e-12, "{metrics:?}");
        let metrics = block_on(trainer.step(&Batch::next_tokens(vec![1; 25]))).unwrap();
        assert!((metrics.unfilled - 0.75).abs() < 1e-12, "{metrics:?}");
    }
}

#[test]
fn what_a_capture_keeps_is_bounded_with_all_that_its_plan_has() {
    let fake = Fake::new(false, 1e9, 0.0);
    let model = model(&fake, config(64, 63, 2048));
    let all = model.captured_of(&[Captured::Residual]).unwrap();
    let kept = |tokens: usize| {
        let options = InferenceOptions::default();
        block_on(model.capture(&vec![1; tokens], &all, options, NO_PROGRESS)).unwrap();
        model.weights.bound_bytes.get()
    };
    assert!((1..KEPT_BYTES).contains(&kept(100)));
    // The tensors alone reach the bound.
    assert_eq!(2048 * 64 * 64 * 4, KEPT_BYTES);
    assert_eq!(kept(2048), 0);
}
