//! Sessions on the double: step, evaluate, generate, save, resume.

use super::Double;
use super::tests::{
    BIASED, LEARNED, NORMED, PARALLEL, Pair, TIED, UNTIED, batch, gpu, header_of, integers, weights,
};
use crate::data::{Batch, Dataset, DatasetOptions};
use crate::session::{
    GenerateOptions, Generation, Model, ModelLoader, NO_PROGRESS, Resume, Snapshot, Trainer,
    TrainerOptions,
};
use crate::twins::check::assert_close;
use pollster::block_on;
use std::rc::Rc;

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

fn dataset() -> Dataset {
    let options =
        DatasetOptions { sequence_length: Some(15), seed: 3, ..DatasetOptions::default() };
    Dataset::from_tokens((0..400).map(|i: u32| (i % 17 * 7 + i / 100) % 60).collect(), options)
        .unwrap()
}

pub(super) fn steps(trainer: &Rc<Trainer>, count: usize) -> Vec<f64> {
    let dataset = dataset();
    let step = |_| block_on(trainer.step_dataset(&dataset, &|| false)).unwrap().loss;
    (0..count).map(step).collect()
}

fn trainer(model: &Rc<Model>) -> Rc<Trainer> {
    block_on(Trainer::create(model, options(), NO_PROGRESS)).unwrap()
}

#[test]
fn the_loss_falls() {
    let pair = Pair::new(&Double::floor(), TIED);
    let losses = steps(&trainer(&pair.model), 12);
    assert!(losses[11] < 0.9 * losses[0], "{losses:?}");
}

#[test]
fn an_evaluation_has_the_twins_loss_and_changes_nothing() {
    let pair = Pair::new(&Double::floor(), NORMED);
    let trainer = trainer(&pair.model);
    let before = weights(&pair.model);
    let dataset = dataset();
    let [nats, counted] = block_on(trainer.evaluate_batch(&dataset, 0)).unwrap();
    let held_out = dataset.validation_batch(0, options().tokens_per_step).unwrap();
    assert_eq!(counted, held_out.counted() as f64);
    assert_close("evaluation", &[nats / counted], &[pair.reference().loss(&held_out)], 0.0, 2e-6);
    assert_eq!(weights(&pair.model), before);
}

#[test]
fn a_loss_is_the_twins() {
    let pair = Pair::new(&Double::floor(), NORMED);
    let tokens = integers(23, 20, 61);
    let text = Batch::next_tokens(tokens.clone());
    let options = Default::default();
    let loss = block_on(pair.model.loss(&tokens, None, options, NO_PROGRESS)).unwrap();
    assert_close("loss", &[loss], &[pair.reference().loss(&text)], 0.0, 2e-6);
}

#[test]
fn a_table_of_positions_ends_a_text() {
    let pair = Pair::new(&Double::floor(), &LEARNED.replace("512", "16"));
    let trainer = trainer(&pair.model);
    let text = |count| Batch::next_tokens(integers(31, count, 61));
    let message = block_on(trainer.step(&text(17))).unwrap_err().message;
    assert!(message.contains("17 tokens") && message.contains("n_positions, 16"), "{message}");
    block_on(trainer.step(&text(16))).unwrap();
    let loss = |count| {
        block_on(pair.model.loss(&integers(31, count, 61), None, Default::default(), NO_PROGRESS))
    };
    let message = loss(17).unwrap_err().message;
    assert!(message.contains("n_positions, 16"), "{message}");
    loss(16).unwrap();
}

#[test]
fn a_loss_is_the_same_however_its_text_is_cut() {
    let model = Pair::new(&Double::floor(), UNTIED).model;
    let tokens = integers(29, 90, 61);
    let loss = || block_on(model.loss(&tokens, None, Default::default(), NO_PROGRESS)).unwrap();
    let whole = loss();
    for units in [1e4, 1e5, 1e6] {
        model.pretend_throughput(units);
        assert_eq!(loss().to_bits(), whole.to_bits(), "{} and {whole}", loss());
    }
}

/// Through the bytes of a checkpoint, onto a device of its own.
pub(super) fn reloaded(model: &Rc<Model>, trainer: &Rc<Trainer>) -> (Rc<Model>, Rc<Trainer>) {
    block_on(async {
        let mut loader = ModelLoader::new(&gpu(&Double::floor()), model.config().clone()).unwrap();
        let (header, length) = header_of(&model.save_header());
        loader.add_file("model.safetensors", &header, length).unwrap();
        let state = trainer.state().await.unwrap();
        let mut resume = Resume::new(model.config(), &state).unwrap();
        let tensors = trainer.optimizer_tensors();
        let (header, length) = header_of(&trainer.save_header());
        resume.add_file("optimizer.safetensors", &header, length).unwrap();
        loader.allocate().unwrap().await.unwrap();
        let loaded = loader.model().unwrap();
        resume.allocate(loaded, Box::new(|_, _, _| false)).unwrap().await.unwrap();
        for (index, (name, _)) in model.tensors().iter().enumerate() {
            loader.set_piece(name, 0, &model.read_tensor(index).await.unwrap()).unwrap();
        }
        for (index, (name, _)) in tensors.iter().enumerate() {
            let bytes = trainer.read_optimizer_tensor(index, None).await.unwrap();
            resume.set_piece(name, 0, &bytes).unwrap();
        }
        (loader.finish().await.unwrap(), resume.finish().await.unwrap())
    })
}

#[test]
fn a_resumed_run_equals_an_uninterrupted_one_to_the_bit() {
    for config in [TIED, NORMED, BIASED, LEARNED, PARALLEL] {
        let whole = Pair::new(&Double::floor(), config);
        let expected = steps(&trainer(&whole.model), 5);
        let parted = Pair::new(&Double::floor(), config);
        let first = trainer(&parted.model);
        let before = steps(&first, 3);
        let (model, second) = reloaded(&parted.model, &first);
        assert_eq!([before, steps(&second, 2)].concat(), expected);
        assert_eq!(weights(&model), weights(&whole.model));
    }
}

/// The bytes of a snapshot's file, whose data are read `piece` bytes at a time.
pub(super) fn file_of(snapshot: &Snapshot, length: u64, piece: usize) -> Vec<u8> {
    let mut file = snapshot.save_header();
    for begin in (0..length).step_by(piece) {
        file.extend(block_on(snapshot.read(begin..length.min(begin + piece as u64))).unwrap());
    }
    file
}

#[test]
fn a_snapshot_is_what_a_save_at_its_moment_gives() {
    for config in [TIED, NORMED, UNTIED, LEARNED, PARALLEL] {
        let double = Double::floor();
        let pair = Pair::new(&double, config);
        let (model, trainer) = (&pair.model, trainer(&pair.model));
        steps(&trainer, 3);
        let mut saved = (model.save_header(), trainer.save_header());
        for index in 0..model.tensors().len() {
            saved.0.extend(block_on(model.read_tensor(index)).unwrap());
        }
        for index in 0..trainer.optimizer_tensors().len() {
            saved.1.extend(block_on(trainer.read_optimizer_tensor(index, None)).unwrap());
        }
        let state = block_on(trainer.state()).unwrap();
        let held = crate::gpu::Gpu::counters(&*double).gpu_bytes;
        let of_model = Snapshot::of_model(model).unwrap();
        let of_trainer = Snapshot::of_trainer(&trainer).unwrap().expect("between steps");
        steps(&trainer, 2);
        let (of_model, of_trainer) = (block_on(of_model).unwrap(), block_on(of_trainer).unwrap());
        let bytes = model.parameter_count() * 4;
        for piece in [4, 1000, 1 << 20] {
            assert!(file_of(&of_model, bytes, piece) == saved.0, "weights by {piece}");
            assert!(file_of(&of_trainer, 2 * bytes, piece) == saved.1, "moments by {piece}");
        }
        assert_eq!(block_on(of_trainer.state()).unwrap(), state);
        drop((of_model, of_trainer));
        assert_eq!(
            crate::gpu::Gpu::counters(&*double).gpu_bytes,
            held,
            "the copies are given back"
        );
        block_on(trainer.step(&batch(&pair.config, 3, 20))).unwrap();
        assert!(Snapshot::of_trainer(&trainer).unwrap().is_none(), "amid an accumulation");
    }
}

fn generated(model: &Rc<Model>, options: GenerateOptions) -> Vec<u32> {
    generated_from(model, &[1, 2, 3], options)
}

fn generated_from(model: &Rc<Model>, prompt: &[u32], options: GenerateOptions) -> Vec<u32> {
    block_on(async {
        let mut generation = Generation::start(model, prompt, options).await.unwrap();
        let mut tokens = vec![];
        loop {
            match generation.next().await.unwrap() {
                some if some.is_empty() => break tokens,
                some => tokens.extend(some.iter().map(|d| d.token)),
            }
        }
    })
}

#[test]
fn draws_are_a_function_of_their_seed() {
    let pair = Pair::new(&Double::floor(), UNTIED);
    let of = |seed, top_k, temperature| {
        let options = GenerateOptions {
            max_tokens: 24,
            temperature,
            top_k,
            seed,
            ..GenerateOptions::default()
        };
        generated(&pair.model, options)
    };
    assert_eq!(of(1, 0, 1.0), of(1, 0, 1.0));
    assert_ne!(of(1, 0, 1.0), of(2, 0, 1.0));
    assert_eq!(of(1, 1, 1.0), of(2, 0, 0.0), "of one token the likeliest is drawn");
}

#[test]
fn a_generation_is_continued_from_its_tokens() {
    let model = Pair::new(&Double::floor(), UNTIED).model;
    let options = |max_tokens, drawn| GenerateOptions {
        max_tokens,
        drawn,
        temperature: 1.0,
        seed: 5,
        ..GenerateOptions::default()
    };
    let whole = generated_from(&model, &[1, 2, 3], options(20, 0));
    for cut in [1, 7, 19, 20] {
        let text = [&[1, 2, 3], &whole[..cut]].concat();
        let rest = generated_from(&model, &text, options(20, cut));
        assert_eq!(rest, whole[cut..], "behind {cut} tokens");
    }
}

#[test]
fn a_step_after_the_first_makes_nothing() {
    let double = Double::floor();
    let pair = Pair::new(&double, UNTIED);
    let trainer = trainer(&pair.model);
    let step = |seed| block_on(trainer.step(&batch(&pair.config, seed, 32))).unwrap();
    step(1);
    let made = || {
        let counters = crate::gpu::Gpu::counters(&*double);
        (counters.buffers, counters.bind_groups, counters.pipelines)
    };
    let before = made();
    step(2);
    step(3);
    assert_eq!(made(), before);
}
