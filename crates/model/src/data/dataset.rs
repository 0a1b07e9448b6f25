//! A tokenised text as an endless supply of training batches and a fixed validation split.

use super::packed::{Documents, Draw, Walk, packs, sampled};
use super::{Batch, TokenSource};
use crate::error::{Error, Result};
use crate::random::{below, philox, split};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::rc::Rc;

/// About how many targets an evaluation looks at when the split has more.
pub const VALIDATION_TARGETS: usize = 1 << 16;

const DEFAULT_SEQUENCE_LENGTH: usize = 128;
/// The length for documents, which are kept whole where that is possible.
const DEFAULT_DOCUMENT_LENGTH: usize = 1024;
/// Third counter word of the dataset's random stream; keeps it apart from other users of a seed.
const STREAM: u32 = 0x6461_7461;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DatasetOptions {
    /// Tokens of a document; `None` takes 128, or what a shorter text or a smaller step allows.
    pub sequence_length: Option<usize>,
    /// Part of the text, at its end, that is never trained on. With 1 there is nothing to train on.
    pub validation_fraction: f64,
    pub seed: u64,
}

impl Default for DatasetOptions {
    fn default() -> Self {
        Self { sequence_length: None, validation_fraction: 0.1, seed: 0 }
    }
}

impl DatasetOptions {
    /// Reads the options object of the JavaScript surface.
    pub fn from_json(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|e| Error::options(format!("dataset options: {e}")))
    }

    fn check(&self) -> Result<()> {
        let fraction = self.validation_fraction;
        if !(0.0..=1.0).contains(&fraction) {
            return Err(Error::options(format!(
                "validationFraction is {fraction}; it must be at least 0 and at most 1"
            )));
        }
        if self.sequence_length == Some(0) {
            return Err(Error::options("sequenceLength is 0; it must be at least 1"));
        }
        Ok(())
    }
}

/// Tokens split into a training part and, after it, a validation part: one text, of which windows are drawn at random
/// places, or documents, which are packed whole in a shuffled order.
#[derive(Clone, Debug)]
pub struct Dataset {
    tokens: Rc<dyn TokenSource>,
    documents: Option<Documents>,
    /// Where the validation split starts.
    boundary: usize,
    sequence_length: usize,
    options: DatasetOptions,
    /// Where the last batch of documents was drawn.
    walk: RefCell<Option<Walk>>,
}

impl Dataset {
    /// A dataset of one text.
    ///
    /// # Errors
    /// `invalid-options`, `invalid-tokens` for a text that is too short.
    pub fn from_tokens(tokens: Vec<u32>, options: DatasetOptions) -> Result<Self> {
        Self::from_source(Rc::new(tokens), options)
    }

    /// A dataset of one text, whose tokens are kept elsewhere.
    ///
    /// # Errors
    /// As [`Dataset::from_tokens`].
    pub fn from_source(tokens: Rc<dyn TokenSource>, options: DatasetOptions) -> Result<Self> {
        options.check()?;
        let fraction = options.validation_fraction;
        let total = tokens.len();
        let validation = (total as f64 * fraction) as usize;
        let train = total - validation;
        let longest = if fraction < 1.0 { train } else { total };
        let sequence_length = options
            .sequence_length
            .unwrap_or_else(|| DEFAULT_SEQUENCE_LENGTH.min(longest.max(2) - 1));
        if fraction < 1.0 && train <= sequence_length {
            let smaller = if sequence_length > 1 { " or a smaller sequenceLength" } else { "" };
            return Err(Error::tokens(format!(
                "the text has {total} tokens, {train} of them for training; sequenceLength \
                 {sequence_length} needs at least {} there: give more text{smaller}",
                sequence_length + 1
            )));
        }
        if fraction > 0.0 && validation < 2 {
            return Err(Error::tokens(format!(
                "the text has {total} tokens, so validationFraction {fraction} leaves {validation} \
                 for validation, which needs at least 2: give more text, a larger fraction, or 0 for \
                 no validation"
            )));
        }
        let (documents, walk) = (None, RefCell::default());
        Ok(Self { tokens, documents, boundary: train, sequence_length, options, walk })
    }

    /// A dataset of documents, one after the other. A token never predicts that of another document. The last documents
    /// are the validation split. A document longer than `sequence_length` is cut.
    ///
    /// # Arguments
    /// `starts`: the first token of each document, from 0 on, ascending.
    ///
    /// # Errors
    /// `invalid-options`; `invalid-tokens` for wrong starts, or where no document for training has two tokens.
    pub fn from_documents(
        tokens: Rc<dyn TokenSource>,
        starts: Vec<u32>,
        options: DatasetOptions,
    ) -> Result<Self> {
        options.check()?;
        let total = tokens.len();
        let ascending = starts.windows(2).all(|pair| pair[0] <= pair[1]);
        let last = starts.last().map_or(0, |&last| last as usize);
        if starts.first() != Some(&0) || !ascending || last > total || total > u32::MAX as usize {
            return Err(Error::tokens(format!(
                "the {} documents of {total} tokens do not lie end to end: starts must ascend from 0",
                starts.len()
            )));
        }
        let documents = Documents::new(starts, total, options.validation_fraction);
        let first =
            if options.validation_fraction < 1.0 { documents.train } else { documents.count() };
        if !documents.learns(&*tokens, first) {
            let held_out = documents.learns(&*tokens, documents.count());
            let whole = if held_out { ", or validationFraction: 0" } else { "" };
            return Err(Error::tokens(format!(
                "of {} documents {} are for training, and none of these has a token to learn (after \
                 its first): give more documents for training{whole}",
                documents.count(),
                documents.train
            )));
        }
        let longest = documents.longest();
        let sequence_length =
            options.sequence_length.unwrap_or_else(|| DEFAULT_DOCUMENT_LENGTH.min(longest));
        let (boundary, walk) = (documents.boundary(), RefCell::default());
        Ok(Self { tokens, documents: Some(documents), boundary, sequence_length, options, walk })
    }

    pub fn options(&self) -> &DatasetOptions {
        &self.options
    }

    /// Tokens of a document, resolved.
    pub fn sequence_length(&self) -> usize {
        self.sequence_length
    }

    /// The tokens of the training split, read.
    #[cfg(test)]
    fn train_tokens(&self) -> Vec<u32> {
        self.read(0..self.boundary)
    }

    /// The tokens of the validation split, read.
    #[cfg(test)]
    pub(super) fn validation_tokens(&self) -> Vec<u32> {
        self.read(self.boundary..self.tokens.len())
    }

    #[cfg(test)]
    fn read(&self, range: std::ops::Range<usize>) -> Vec<u32> {
        let mut tokens = vec![];
        self.tokens.read(range, &mut tokens);
        tokens
    }

    /// Training batch number `index`, a pure function of the index and two seeds, the dataset's and the trainer's. From
    /// one text it takes windows of `sequence_length` tokens at random places, as many as fit into the step, and a
    /// shorter one that fills the rest. From documents it takes the next whole ones of the epoch's order, as many as
    /// fit. An epoch's last batch goes on with documents of the next.
    ///
    /// # Errors
    /// `invalid-options` when a document is longer than the step.
    pub fn batch(&self, seed: u64, index: u64, tokens_per_step: usize) -> Result<Batch> {
        let mut batch = Batch::default();
        self.draw(seed, index, tokens_per_step, &mut batch)?;
        Ok(batch)
    }

    /// As [`Dataset::batch`], into an earlier batch, whose memory it keeps.
    ///
    /// # Errors
    /// As [`Dataset::batch`]; `invalid-options` when `validationFraction` is 1.
    pub fn draw(
        &self,
        seed: u64,
        index: u64,
        tokens_per_step: usize,
        batch: &mut Batch,
    ) -> Result<()> {
        let length = self.document_length(tokens_per_step)?;
        if self.boundary == 0 {
            return Err(Error::options("validationFraction is 1: there is nothing to train on"));
        }
        // Turned by half a word, so that equal seeds do not cancel.
        let seed = self.options.seed ^ seed.rotate_left(32);
        if let Some(documents) = &self.documents {
            let draw = Draw { seed, length, tokens_per_step };
            self.walk_to(documents, draw, index, batch);
            return Ok(());
        }
        let [index_low, index_high] = split(index);
        let key = split(seed);
        let windows = (0..tokens_per_step.div_ceil(length)).map(|document| {
            let length = length.min(tokens_per_step - document * length);
            let counter = [index_low, index_high, STREAM, document as u32];
            let [low, high, ..] = philox(counter, key);
            (below(low, high, (self.boundary - length) as u64) as usize, length)
        });
        self.pack(windows, batch);
        Ok(())
    }

    /// Fills a batch with its pieces of documents. Batches in their order are found at once; a step back
    /// walks from the beginning.
    fn walk_to(&self, documents: &Documents, draw: Draw, index: u64, batch: &mut Batch) {
        let mut kept = self.walk.borrow_mut();
        let walk = match &mut *kept {
            Some(walk) if walk.leads_to(draw, index) => walk,
            other => other.insert(Walk::new(documents, draw)),
        };
        while walk.index < index {
            walk.next(documents, &*self.tokens);
        }
        self.pack(walk.next(documents, &*self.tokens).iter().copied(), batch);
    }

    /// Tokens of a document in steps of that size. Only a length that nobody asked for adapts to a smaller step.
    fn document_length(&self, tokens_per_step: usize) -> Result<usize> {
        let length = self.sequence_length;
        if length <= tokens_per_step {
            return Ok(length);
        }
        if self.options.sequence_length.is_none() && tokens_per_step > 0 {
            return Ok(tokens_per_step);
        }
        Err(Error::options(format!(
            "sequenceLength is {length} and tokensPerStep {tokens_per_step}, so a document is \
             {} tokens longer than a step: raise the trainer's tokensPerStep to {length} or more, or \
             lower the dataset's sequenceLength to {tokens_per_step} or less",
            length - tokens_per_step
        )))
    }

    /// Windows of an evaluation: how many there are in the split and how many of them are used.
    fn validation_windows(&self, length: usize) -> (usize, usize) {
        let targets = (self.tokens.len() - self.boundary).saturating_sub(1);
        let all = targets.div_ceil(length);
        (all, all.min(VALIDATION_TARGETS.div_ceil(length)))
    }

    /// Number of batches of one evaluation; 0 when there is no validation split.
    ///
    /// # Errors
    /// `invalid-options` when a document is longer than the step.
    pub fn validation_batches(&self, tokens_per_step: usize) -> Result<usize> {
        let length = self.document_length(tokens_per_step)?;
        if let Some(documents) = &self.documents {
            let pieces = sampled(documents.validation_pieces(&*self.tokens, length));
            return Ok(packs(&pieces, tokens_per_step).len());
        }
        Ok(self.validation_windows(length).1.div_ceil(tokens_per_step / length))
    }

    /// Batch `i` of an evaluation. Windows of a document's length follow one another over the validation split, the
    /// last one short, so that each target counts once. In a split with more than [`VALIDATION_TARGETS`] targets,
    /// windows evenly spread from its start are used. Documents are packed whole in their order, and sampled alike.
    ///
    /// # Errors
    /// `invalid-options` when a document is longer than the step.
    ///
    /// # Panics
    /// When `i` is not below [`validation_batches`](Self::validation_batches).
    pub fn validation_batch(&self, i: usize, tokens_per_step: usize) -> Result<Batch> {
        let length = self.document_length(tokens_per_step)?;
        if let Some(documents) = &self.documents {
            let pieces = sampled(documents.validation_pieces(&*self.tokens, length));
            let pack = packs(&pieces, tokens_per_step)[i].clone();
            let mut batch = Batch::default();
            self.pack(pieces[pack].iter().copied(), &mut batch);
            return Ok(batch);
        }
        let documents = tokens_per_step / length;
        let (all, used) = self.validation_windows(length);
        let first = i * documents;
        assert!(first < used, "validation batch {i} of {}", used.div_ceil(documents));
        let last_target = self.tokens.len() - 1;
        let windows = (first..used.min(first + documents)).map(|window| {
            let place = (window as u64 * all as u64 / used as u64) as usize;
            let start = self.boundary + place * length;
            (start, length.min(last_target - start))
        });
        let mut batch = Batch::default();
        self.pack(windows, &mut batch);
        Ok(batch)
    }

    /// Fills a batch with windows (start, length) of the tokens. The target of a window's last token is
    /// the token that follows the window.
    fn pack(&self, windows: impl Iterator<Item = (usize, usize)>, batch: &mut Batch) {
        for list in [&mut batch.tokens, &mut batch.targets, &mut batch.documents] {
            list.clear();
        }
        for (start, length) in windows {
            let document = batch.tokens.len() as u32;
            self.tokens.read(start..start + length, &mut batch.tokens);
            self.tokens.read_targets(start + 1..start + length + 1, &mut batch.targets);
            batch.documents.extend(std::iter::repeat_n(document, length));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    /// A text whose token is its own index shows where each window comes from.
    fn dataset(tokens: u32, sequence_length: usize, fraction: f64, seed: u64) -> Dataset {
        let options = DatasetOptions {
            sequence_length: Some(sequence_length),
            validation_fraction: fraction,
            seed,
        };
        Dataset::from_tokens((0..tokens).collect(), options).unwrap()
    }

    #[test]
    fn the_validation_split_is_the_end_of_the_text() {
        let data = dataset(1000, 64, 0.1, 0);
        assert_eq!(data.train_tokens(), (0..900).collect::<Vec<_>>());
        assert_eq!(data.validation_tokens(), (900..1000).collect::<Vec<_>>());
    }

    #[test]
    fn training_batches_are_shifted_windows_of_the_training_split() {
        let data = dataset(1000, 64, 0.1, 5);
        for index in 0..200 {
            let batch = data.batch(0, index, 200).unwrap();
            batch.validate(900, 200).unwrap();
            // 200 = 3 · 64 + 8: a short document fills the step.
            assert_eq!(batch.len(), 200);
            for (i, (&token, &target)) in batch.tokens.iter().zip(&batch.targets).enumerate() {
                assert_eq!(target, token + 1);
                assert_eq!(batch.documents[i] as usize, i / 64 * 64);
                assert_eq!(token, batch.tokens[i / 64 * 64] + (i % 64) as u32);
            }
            assert_eq!(batch.tokens[..192], data.batch(0, index, 192).unwrap().tokens);
        }
    }

    #[test]
    fn every_place_of_the_training_split_is_drawn() {
        let data = dataset(20, 4, 0.1, 1);
        let mut seen = [false; 18];
        (0..400).for_each(|i| seen[data.batch(0, i, 4).unwrap().tokens[0] as usize] = true);
        // 18 training tokens: the last window starts at 13, its last target is token 17.
        assert_eq!(seen.iter().filter(|&&s| s).count(), 14);
        assert!(seen[0] && seen[13]);
    }

    #[test]
    fn batches_are_a_pure_function_of_seeds_and_index() {
        let data = dataset(1000, 16, 0.0, 9);
        let batch = |seed, index| data.batch(seed, index, 64).unwrap();
        assert_eq!(batch(0, 7), data.clone().batch(0, 7, 64).unwrap());
        assert_ne!(batch(0, 7), batch(0, 8));
        assert_ne!(batch(0, 7), batch(0, 7 | 1 << 40));
        assert_ne!(batch(0, 7), batch(1, 7));
        let other = |seed, own| dataset(1000, 16, 0.0, seed).batch(own, 7, 64).unwrap();
        assert_ne!(batch(9, 7), other(0, 0));
        assert_ne!(batch(0, 7), other(10, 0));
    }

    #[test]
    fn a_document_longer_than_the_step_is_refused() {
        let data = dataset(1000, 64, 0.1, 0);
        let refused = [
            data.batch(0, 0, 10).unwrap_err(),
            data.validation_batches(10).unwrap_err(),
            data.validation_batch(0, 10).unwrap_err(),
        ];
        for error in refused {
            assert_eq!(error.code, ErrorCode::InvalidOptions);
            for needle in ["sequenceLength is 64", "tokensPerStep 10", "54 tokens longer"] {
                assert!(error.message.contains(needle), "{}", error.message);
            }
        }
        assert_eq!(data.batch(0, 0, 64).unwrap().len(), 64);
        let filled = data.batch(0, 0, 127).unwrap();
        assert_eq!((filled.len(), filled.documents[126]), (127, 64));
    }

    #[test]
    fn a_length_that_nobody_gave_adapts_to_the_step() {
        let data = Dataset::from_tokens((0..5000).collect(), DatasetOptions::default()).unwrap();
        for (step, documents) in [(10, 1), (128, 1), (300, 3)] {
            let batch = data.batch(0, 0, step).unwrap();
            let starts = batch.documents.iter().enumerate().filter(|&(i, &s)| i == s as usize);
            assert_eq!((batch.len(), starts.count()), (step, documents));
        }
        assert_eq!(data.validation_batches(10).unwrap(), 50);
        assert!(data.batch(0, 0, 0).is_err());
    }

    #[test]
    fn validation_counts_each_target_once() {
        for (tokens, length, per_step) in
            [(1000, 16, 64), (1000, 16, 70), (1000, 64, 64), (40, 3, 3), (1000, 7, 1000)]
        {
            let data = dataset(tokens, length, 0.1, 0);
            let mut targets = vec![];
            for i in 0..data.validation_batches(per_step).unwrap() {
                let batch = data.validation_batch(i, per_step).unwrap();
                batch.validate(tokens as usize, per_step).unwrap();
                assert!(batch.tokens.iter().zip(&batch.targets).all(|(a, b)| a + 1 == *b));
                targets.extend(batch.targets);
            }
            let expected: Vec<u32> = (tokens - tokens / 10 + 1..tokens).collect();
            assert_eq!(targets, expected);
        }
        assert_eq!(dataset(100, 8, 0.0, 0).validation_batches(64).unwrap(), 0);
    }

    #[test]
    fn a_long_split_is_sampled_evenly_from_its_start() {
        let data = dataset(2_000_000, 64, 0.1, 0);
        let batches = data.validation_batches(768).unwrap();
        let targets: Vec<u32> =
            (0..batches).flat_map(|i| data.validation_batch(i, 768).unwrap().targets).collect();
        assert_eq!(targets.len(), VALIDATION_TARGETS);
        assert_eq!(targets[0], 1_800_001);
        assert!(targets.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(*targets.last().unwrap() > 1_999_600);
    }

    #[test]
    fn all_of_a_text_or_of_documents_may_be_for_validation() {
        let options = DatasetOptions { validation_fraction: 1.0, ..DatasetOptions::default() };
        let text = Dataset::from_tokens((0..50).collect(), options).unwrap();
        let starts = vec![0, 20, 21];
        let documents =
            Dataset::from_documents(Rc::new((0..50).collect::<Vec<u32>>()), starts, options)
                .unwrap();
        let all: Vec<u32> = (1..50).collect();
        let apart: Vec<u32> = (1..20).chain(22..50).collect();
        for (data, wanted) in [(text, all), (documents, apart)] {
            let batches = data.validation_batches(30).unwrap();
            let targets: Vec<u32> =
                (0..batches).flat_map(|i| data.validation_batch(i, 30).unwrap().targets).collect();
            assert_eq!(targets, wanted);
            let error = data.batch(0, 0, 30).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidOptions);
            assert!(error.message.contains("nothing to train on"), "{}", error.message);
        }
    }

    #[test]
    fn unusable_texts_and_options_are_refused() {
        let make = |n: u32, sequence_length, validation_fraction| {
            let options = DatasetOptions { sequence_length, validation_fraction, seed: 0 };
            Dataset::from_tokens((0..n).collect(), options)
        };
        for (result, code, needle) in [
            (make(100, Some(0), 0.1), ErrorCode::InvalidOptions, "sequenceLength is 0"),
            (make(100, None, 1.1), ErrorCode::InvalidOptions, "validationFraction is 1.1"),
            (make(100, None, f64::NAN), ErrorCode::InvalidOptions, "validationFraction is NaN"),
            (make(0, None, 0.0), ErrorCode::InvalidTokens, "needs at least 2"),
            (make(1, None, 0.0), ErrorCode::InvalidTokens, "needs at least 2"),
            (make(64, Some(64), 0.0), ErrorCode::InvalidTokens, "needs at least 65"),
            (make(19, Some(4), 0.1), ErrorCode::InvalidTokens, "leaves 1 for validation"),
        ] {
            let error = result.unwrap_err();
            assert!(error.code == code && error.message.contains(needle), "{}", error.message);
        }
        assert_eq!(make(2, None, 0.0).unwrap().sequence_length(), 1);
        assert_eq!(make(50, None, 0.1).unwrap().sequence_length(), 44);
        assert_eq!(make(5000, None, 0.1).unwrap().sequence_length(), 128);
        assert_eq!(DatasetOptions::from_json("{}").unwrap(), DatasetOptions::default());
        assert_eq!(
            DatasetOptions::from_json(r#"{"sequenceLength":9}"#).unwrap().sequence_length,
            Some(9)
        );
        let unknown = DatasetOptions::from_json(r#"{"sequencelength":9}"#).unwrap_err();
        assert!(unknown.message.contains("sequencelength"));
    }
}
