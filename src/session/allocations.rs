//! What a step and a decoded token allocate on the host, the encoding of their dispatches included: nothing that
//! grows with tokens, dispatches or layers.

use super::counting::counted;
use super::fake::{Encoded, Fake};
use super::tests::{config, model};
use super::{GenerateOptions, Generation, NO_PROGRESS, Trainer, TrainerOptions};
use crate::data::{Dataset, DatasetOptions};
use pollster::block_on;
use std::rc::Rc;

/// Allocations and their bytes, and the dispatches that were encoded meanwhile.
struct Seen {
    counted: (usize, usize),
    dispatches: usize,
}

/// Counts what some work allocates that a device encodes.
fn seen(gpu: &Fake, work: impl FnOnce()) -> Seen {
    let before = gpu.encoded.get();
    let counted = counted(work);
    let Encoded { dispatches, bindings, pipelines, .. } = gpu.encoded.get();
    assert!(bindings <= dispatches, "bindings are set where they change");
    assert!(pipelines <= dispatches, "a pipeline is set where it changes");
    Seen { counted, dispatches: dispatches - before.dispatches }
}

/// One step over the next batch of a dataset of one text.
fn step(layers: usize, tokens: usize) -> Seen {
    let text = (0..20_000).map(|i| i % 500).collect();
    step_of(&Dataset::from_tokens(text, DatasetOptions::default()).unwrap(), layers, tokens)
}

/// One step over the next batch of a dataset of documents with 32 inputs each.
fn step_of_documents(layers: usize, tokens: usize) -> Seen {
    let text: Vec<u32> = (0..33_000).map(|i| i % 500).collect();
    let starts = (0..1000).map(|document| document * 33).collect();
    let documents = Dataset::from_documents(Rc::new(text), starts, DatasetOptions::default());
    step_of(&documents.unwrap(), layers, tokens)
}

fn step_of(dataset: &Dataset, layers: usize, tokens: usize) -> Seen {
    let fake = Fake::new(false, 3e10, 0.0);
    let model = model(&fake, config(64, layers, 4096));
    let options = TrainerOptions { tokens_per_step: tokens, ..TrainerOptions::default() };
    let trainer = block_on(Trainer::create(&model, options, NO_PROGRESS)).unwrap();
    let step = || assert!(block_on(trainer.step_dataset(dataset, &|| false)).is_ok());
    step();
    seen(&fake, step)
}

#[test]
fn a_step_allocates_nothing_that_grows_with_tokens_or_layers() {
    for step in [step, step_of_documents] {
        let small = step(2, 64);
        let [long, deep] = [step(2, 2048), step(12, 64)];
        assert_eq!(long.counted, small.counted, "calls and bytes with 2,048 tokens, not 64");
        assert_eq!(deep.counted, small.counted, "calls and bytes with 12 layers, not 2");
        println!(
            "{:?} with {} and {} dispatches",
            small.counted, small.dispatches, deep.dispatches
        );
        assert!(small.dispatches > 50 && deep.dispatches > 4 * small.dispatches, "dispatches");
    }
}

/// One submit of eight decoded tokens, the least of several: a text's own list doubles at times.
fn submit(layers: usize, prompt: usize) -> Seen {
    let fake = Fake::new(false, 3e10, 0.0);
    let model = model(&fake, config(64, layers, 4096));
    let options = GenerateOptions { max_tokens: 400, ..GenerateOptions::default() };
    let prompt = vec![1; prompt];
    let mut generation = block_on(Generation::start(&model, &prompt, options)).unwrap();
    let mut next = || assert!(!block_on(generation.next()).unwrap().is_empty());
    next();
    (0..20).map(|_| seen(&fake, &mut next)).min_by_key(|seen| seen.counted).unwrap()
}

#[test]
fn a_token_allocates_nothing_that_grows_with_its_text_or_layers() {
    let small = submit(2, 20);
    let [long, deep] = [submit(2, 2000), submit(12, 20)];
    assert_eq!(long.counted, small.counted, "calls and bytes after 2,000 tokens, not 20");
    assert_eq!(deep.counted, small.counted, "calls and bytes with 12 layers, not 2");
    println!("{:?} with {} and {} dispatches", small.counted, small.dispatches, deep.dispatches);
    assert!(small.dispatches > 100 && deep.dispatches > 3 * small.dispatches, "dispatches");
}
