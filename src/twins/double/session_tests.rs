//! Sessions on the double: step, evaluate, generate, save, resume.

use super::Double;
use super::tests::{NORMED, Pair, TIED, UNTIED, batch, gpu, header_of, integers, weights};
use crate::data::{Batch, Dataset, DatasetOptions};
use crate::session::{
    GenerateOptions, Generation, Model, ModelLoader, Resume, Trainer, TrainerOptions, UNWATCHED,
};
use crate::twins::check::assert_close;
use pollster::block_on;
use std::rc::Rc;

fn options() -> TrainerOptions {
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

fn steps(trainer: &Rc<Trainer>, count: usize) -> Vec<f64> {
    let dataset = dataset();
    let step = |_| block_on(trainer.step_dataset(&dataset, &|| false)).unwrap().loss;
    (0..count).map(step).collect()
}

fn trainer(model: &Rc<Model>) -> Rc<Trainer> {
    block_on(Trainer::create(model, options(), UNWATCHED)).unwrap()
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
    let loss = block_on(pair.model.loss(&tokens, None, options, UNWATCHED)).unwrap();
    assert_close("loss", &[loss], &[pair.reference().loss(&text)], 0.0, 2e-6);
}

#[test]
fn a_loss_is_the_same_however_its_text_is_cut() {
    let model = Pair::new(&Double::floor(), UNTIED).model;
    let tokens = integers(29, 90, 61);
    let loss = || block_on(model.loss(&tokens, None, Default::default(), UNWATCHED)).unwrap();
    let whole = loss();
    for units in [1e4, 1e5, 1e6] {
        model.pretend_pace(units);
        assert_eq!(loss().to_bits(), whole.to_bits(), "{} and {whole}", loss());
    }
}

/// Through the bytes of a checkpoint, onto a device of its own.
fn reloaded(model: &Rc<Model>, trainer: &Rc<Trainer>) -> (Rc<Model>, Rc<Trainer>) {
    block_on(async {
        let mut loader = ModelLoader::new(&gpu(&Double::floor()), model.config().clone());
        let (header, length) = header_of(&model.save_header(), &model.tensors());
        loader.add_file("model.safetensors", &header, length).unwrap();
        let state = trainer.state().await.unwrap();
        let mut resume = Resume::new(model.config(), &state).unwrap();
        let tensors = trainer.optimizer_tensors();
        let (header, length) = header_of(&trainer.save_header(), &tensors);
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
    for config in [TIED, NORMED] {
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

fn generated(model: &Rc<Model>, options: GenerateOptions) -> Vec<u32> {
    block_on(async {
        let mut generation = Generation::start(model, &[1, 2, 3], options).await.unwrap();
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
