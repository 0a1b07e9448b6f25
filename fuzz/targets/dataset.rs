//! Datasets: whatever the tokens, documents and options, each batch that is drawn is one that a step takes.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use std::rc::Rc;
use tinyloom::data::{Batch, Dataset, DatasetOptions};

#[derive(Arbitrary, Debug)]
struct Input {
    options: String,
    sequence_length: Option<u16>,
    validation_fraction: f64,
    seed: u64,
    tokens: Vec<u8>,
    starts: Option<Vec<u16>>,
    tokens_per_step: u8,
    index: u64,
}

fn expect(batch: Batch, tokens_per_step: usize) {
    assert!(batch.len() <= tokens_per_step);
    batch.validate(256, tokens_per_step).expect("a batch that a step takes");
}

fuzz_target!(|input: Input| {
    let options = DatasetOptions::from_json(&input.options).unwrap_or(DatasetOptions {
        sequence_length: input.sequence_length.map(usize::from),
        validation_fraction: input.validation_fraction,
        seed: input.seed,
    });
    let tokens: Vec<u32> = input.tokens.iter().map(|&token| token.into()).collect();
    let made = match input.starts {
        Some(starts) => {
            let starts = starts.into_iter().map(u32::from).collect();
            Dataset::from_documents(Rc::new(tokens), starts, options)
        }
        None => Dataset::from_tokens(tokens, options),
    };
    let Ok(dataset) = made else { return };
    let most = input.tokens_per_step.into();
    // A walk to a far batch passes those before it.
    for index in [0, 1, input.index % 256] {
        if let Ok(batch) = dataset.batch(input.seed, index, most) {
            expect(batch, most);
        }
    }
    for index in 0..dataset.validation_batches(most).unwrap_or(0).min(16) {
        if let Ok(batch) = dataset.validation_batch(index, most) {
            expect(batch, most);
        }
    }
});
