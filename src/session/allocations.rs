//! What a step and a decoded token allocate on the host: nothing that grows with tokens or layers.

use super::counting::counted;
use super::fake::Fake;
use super::tests::{config, model};
use super::{GenerateOptions, Generation, Trainer, TrainerOptions, UNWATCHED};
use crate::data::{Dataset, DatasetOptions};
use pollster::block_on;
use std::rc::Rc;

/// One step over the next batch of a dataset of one text.
fn step(layers: usize, tokens: usize) -> (usize, usize) {
    let text = (0..20_000).map(|i| i % 500).collect();
    step_of(&Dataset::from_tokens(text, DatasetOptions::default()).unwrap(), layers, tokens)
}

/// The same, of documents with 32 inputs each.
fn step_of_documents(layers: usize, tokens: usize) -> (usize, usize) {
    let text: Vec<u32> = (0..33_000).map(|i| i % 500).collect();
    let starts = (0..1000).map(|document| document * 33).collect();
    let documents = Dataset::from_documents(Rc::new(text), starts, DatasetOptions::default());
    step_of(&documents.unwrap(), layers, tokens)
}

fn step_of(dataset: &Dataset, layers: usize, tokens: usize) -> (usize, usize) {
    let model = model(&Fake::new(false, 3e10, 0.0), config(64, layers, 4096));
    let options = TrainerOptions { tokens_per_step: tokens, ..TrainerOptions::default() };
    let trainer = block_on(Trainer::create(&model, options, UNWATCHED)).unwrap();
    let step = || assert!(block_on(trainer.step_dataset(dataset, &|| false)).is_ok());
    step();
    counted(step)
}

#[test]
fn a_step_allocates_nothing_that_grows_with_tokens_or_layers() {
    for step in [step, step_of_documents] {
        let small = step(2, 64);
        assert_eq!(step(2, 2048), small, "calls and bytes with 2,048 tokens, not 64");
        assert_eq!(step(12, 64), small, "calls and bytes with 12 layers, not 2");
    }
}

/// One submit of sixteen decoded tokens, the least of several: a text's own list doubles at times.
fn submit(layers: usize, prompt: usize) -> (usize, usize) {
    let model = model(&Fake::new(false, 3e10, 0.0), config(64, layers, 4096));
    let options = GenerateOptions { max_tokens: 400, ..GenerateOptions::default() };
    let prompt = vec![1; prompt];
    let mut generation = block_on(Generation::start(&model, &prompt, options)).unwrap();
    let mut next = || assert!(!block_on(generation.next()).unwrap().is_empty());
    next();
    (0..20).map(|_| counted(&mut next)).min().unwrap()
}

#[test]
fn a_token_allocates_nothing_that_grows_with_its_text_or_layers() {
    let small = submit(2, 20);
    assert_eq!(submit(2, 2000), small, "calls and bytes after 2,000 tokens, not 20");
    assert_eq!(submit(12, 20), small, "calls and bytes with 12 layers, not 2");
}
