//! Documents packed whole into batches, in a shuffled order without replacement.

use super::{TokenSource, VALIDATION_TARGETS};
use crate::random::{below, philox, split};
use std::ops::Range;

/// Third counter word of the order's random stream; keeps it apart from other users of a seed.
const STREAM: u32 = 0x6f72_6465;

/// Where the documents of a dataset begin, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Documents {
    /// The first token of each, and last the number of tokens.
    starts: Vec<u32>,
    /// How many of the first are for training; the others are for validation.
    pub train: usize,
}

impl Documents {
    /// Splits documents so that the last ones, with about that share of the tokens, are for validation.
    pub fn new(mut starts: Vec<u32>, tokens: usize, validation_fraction: f64) -> Self {
        starts.push(tokens as u32);
        let count = starts.len() - 1;
        let wanted = tokens - (tokens as f64 * validation_fraction) as usize;
        let mut train = starts[..count].partition_point(|&start| (start as usize) < wanted);
        if validation_fraction > 0.0 && train == count {
            train = count.saturating_sub(1); // the last document alone is longer than the share
        }
        Self { starts, train }
    }

    pub fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// Tokens of a document. Its inputs are all but the last of them, which is only a target.
    fn tokens(&self, document: usize) -> Range<usize> {
        self.starts[document] as usize..self.starts[document + 1] as usize
    }

    /// The token where the validation split begins.
    pub fn boundary(&self) -> usize {
        self.starts[self.train] as usize
    }

    /// Inputs of the longest document.
    pub fn longest(&self) -> usize {
        (0..self.count()).map(|i| self.tokens(i).len().saturating_sub(1)).max().unwrap_or(0)
    }

    /// The pieces (start, length) of a document: it is cut where it is longer than `length` inputs. One
    /// whose targets are not learned is left out.
    fn pieces(
        &self,
        tokens: &dyn TokenSource,
        document: usize,
        length: usize,
    ) -> impl Iterator<Item = (usize, usize)> {
        let Range { start, end } = self.tokens(document);
        let last = end.saturating_sub(1).max(start);
        let pieces = (start..last).step_by(length).map(move |at| (at, length.min(last - at)));
        pieces.filter(|&(at, length)| tokens.learns(at + 1..at + length + 1))
    }

    /// Whether one of the first documents has a target that is learned.
    pub fn learns(&self, tokens: &dyn TokenSource, first: usize) -> bool {
        (0..first).any(|i| {
            let Range { start, end } = self.tokens(i);
            end > start + 1 && tokens.learns(start + 1..end)
        })
    }

    /// All pieces of the validation split.
    pub fn validation_pieces(
        &self,
        tokens: &dyn TokenSource,
        length: usize,
    ) -> Vec<(usize, usize)> {
        (self.train..self.count()).flat_map(|i| self.pieces(tokens, i, length)).collect()
    }
}

/// Packs pieces of at most `most` tokens into batches of at most `most` tokens. A piece that does not fit into what is
/// left of a batch begins the next.
pub(super) fn packs(pieces: &[(usize, usize)], most: usize) -> Vec<Range<usize>> {
    let mut packs = vec![];
    let (mut first, mut used) = (0, 0);
    for (i, &(_, length)) in pieces.iter().enumerate() {
        if used + length > most {
            packs.push(first..i);
            (first, used) = (i, 0);
        }
        used += length;
    }
    if first < pieces.len() {
        packs.push(first..pieces.len());
    }
    packs
}

/// The pieces of an evaluation: all, or some spread evenly from the first on, with about
/// [`VALIDATION_TARGETS`] targets.
pub(super) fn sampled(pieces: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
    let targets: usize = pieces.iter().map(|(_, length)| length).sum();
    if targets <= VALIDATION_TARGETS {
        return pieces;
    }
    let all = pieces.len() as u64;
    let used = (all * VALIDATION_TARGETS as u64).div_ceil(targets as u64);
    (0..used).map(|i| pieces[(i * all / used) as usize]).collect()
}

/// What decides which pieces a batch has, besides its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Draw {
    pub seed: u64,
    /// Inputs of a piece at most.
    pub length: usize,
    pub tokens_per_step: usize,
}

/// The walk through the shuffled documents, one epoch after the other, to the next batch. Going back
/// begins it again: a batch is a function of its number alone.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    draw: Draw,
    /// Number of the next batch.
    pub index: u64,
    epoch: u64,
    order: Vec<u32>,
    /// The next document in the order, and how many of its pieces are done.
    at: usize,
    done: usize,
    /// The pieces of the last batch: their memory serves the next.
    pieces: Vec<(usize, usize)>,
}

impl Walk {
    pub fn new(documents: &Documents, draw: Draw) -> Self {
        let order = shuffled(documents.train, draw.seed, 0);
        Self { draw, index: 0, epoch: 0, order, at: 0, done: 0, pieces: vec![] }
    }

    /// Whether it leads to that batch.
    pub fn leads_to(&self, draw: Draw, index: u64) -> bool {
        self.draw == draw && self.index <= index
    }

    /// The pieces of the next batch. Documents for training must have at least one piece.
    pub fn next(&mut self, documents: &Documents, tokens: &dyn TokenSource) -> &[(usize, usize)] {
        let mut used = 0;
        self.pieces.clear();
        self.index += 1;
        loop {
            if self.at == self.order.len() {
                self.epoch += 1;
                shuffle(&mut self.order, self.draw.seed, self.epoch);
                self.at = 0;
            }
            let document = self.order[self.at] as usize;
            let pieces = documents.pieces(tokens, document, self.draw.length);
            for piece in pieces.skip(self.done) {
                if used + piece.1 > self.draw.tokens_per_step {
                    return &self.pieces;
                }
                used += piece.1;
                self.done += 1;
                self.pieces.push(piece);
            }
            (self.at, self.done) = (self.at + 1, 0);
        }
    }
}

/// The numbers below `count` in the order of an epoch (Fisher and Yates, with Philox).
fn shuffled(count: usize, seed: u64, epoch: u64) -> Vec<u32> {
    let mut order = vec![0; count];
    shuffle(&mut order, seed, epoch);
    order
}

/// [`shuffled`] into `order`, whose length is the count.
fn shuffle(order: &mut [u32], seed: u64, epoch: u64) {
    (0..).zip(&mut *order).for_each(|(i, document)| *document = i);
    let [low, high] = split(epoch);
    for i in (1..order.len()).rev() {
        let [a, b, ..] = philox([low, high, STREAM, i as u32], split(seed));
        order.swap(i, below(a, b, i as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Dataset, DatasetOptions, IGNORE_INDEX, MaskedTokens};
    use std::rc::Rc;

    #[test]
    fn an_order_has_each_number_once_and_differs_by_epoch_and_seed() {
        let order = shuffled(100, 1, 0);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<_>>());
        assert_ne!(order, sorted);
        assert_ne!(order, shuffled(100, 1, 1));
        assert_ne!(order, shuffled(100, 2, 0));
        assert_eq!(order, shuffled(100, 1, 0));
    }

    #[test]
    fn the_last_documents_are_for_validation() {
        let split = |fraction| Documents::new(vec![0, 40, 60, 95], 100, fraction).train;
        assert_eq!([0.0, 0.04, 0.05, 0.1, 0.5].map(split), [4, 3, 3, 3, 2]);
        assert_eq!(Documents::new(vec![0, 10], 100, 0.1).boundary(), 10);
    }

    #[test]
    fn pieces_are_packed_whole() {
        assert_eq!(packs(&[(0, 3), (4, 3), (8, 2), (11, 5)], 5), [0..1, 1..3, 3..4]);
        assert!(packs(&[], 5).is_empty());
    }

    #[test]
    fn documents_are_packed_whole_and_each_is_drawn_once_in_an_epoch() {
        // Document d has 2 + d % 5 tokens, all of them d; its inputs are one fewer.
        let lengths: Vec<u32> = (0..50).map(|d| 2 + d % 5).collect();
        let starts = lengths.iter().scan(0, |at, n| Some(std::mem::replace(at, *at + n))).collect();
        let tokens: Vec<u32> =
            (0..50).flat_map(|d| vec![d; lengths[d as usize] as usize]).collect();
        let options = DatasetOptions { validation_fraction: 0.2, ..DatasetOptions::default() };
        let data = Dataset::from_documents(Rc::new(tokens), starts, options).unwrap();
        assert_eq!((data.sequence_length(), data.validation_tokens()[0]), (5, 40));
        let (mut drawn, mut targets) = (vec![], 0);
        for index in 0..40 {
            let batch = data.batch(7, index, 12).unwrap();
            batch.validate(50, 12).unwrap();
            assert!(batch.len() > 12 - 5, "a document fits in what is left of the batch");
            assert_eq!(batch.tokens, batch.targets, "a token predicts its own document's");
            targets += batch.len();
            for (i, &start) in batch.documents.iter().enumerate() {
                if start as usize == i {
                    drawn.push(batch.tokens[i]);
                }
            }
        }
        assert!(targets >= 3 * 120);
        for epoch in drawn.chunks(40).take(3) {
            let mut epoch = epoch.to_vec();
            epoch.sort_unstable();
            assert_eq!(epoch, (0..40).collect::<Vec<_>>());
        }
        assert_ne!(drawn[..40], drawn[40..80]);
        // Going back, and another order, give the same as going on.
        let again = data.batch(7, 3, 12).unwrap();
        assert_eq!(again, data.clone().batch(7, 3, 12).unwrap());
        data.batch(8, 3, 12).unwrap();
        assert_eq!(again, data.batch(7, 3, 12).unwrap());
        let evaluated: Vec<_> = (0..data.validation_batches(12).unwrap())
            .flat_map(|i| data.validation_batch(i, 12).unwrap().tokens)
            .collect();
        let expected: Vec<u32> =
            (40..50).flat_map(|d| vec![d; lengths[d as usize] as usize - 1]).collect();
        assert_eq!(evaluated, expected);
    }

    #[test]
    fn long_documents_are_cut_and_masked_tokens_are_no_targets() {
        let learned = (0..23).map(|i| i % 2 == 0).collect();
        let tokens = MaskedTokens { tokens: (0..23).collect(), learned };
        let options = DatasetOptions {
            sequence_length: Some(8),
            validation_fraction: 0.0,
            ..DatasetOptions::default()
        };
        let data = Dataset::from_documents(Rc::new(tokens), vec![0, 20], options).unwrap();
        let mut seen: Vec<(u32, u32)> = (0..3)
            .flat_map(|i| {
                let batch = data.batch(0, i, 8).unwrap();
                batch.tokens.into_iter().zip(batch.targets).collect::<Vec<_>>()
            })
            .collect();
        seen.sort_unstable();
        seen.dedup();
        assert!(seen.len() >= 19 - 8);
        for (token, target) in seen {
            assert!(token != 19 && token != 22, "the last token of a document is no input");
            assert_eq!(target, if token % 2 == 1 { token + 1 } else { IGNORE_INDEX });
        }
        assert_eq!(data.validation_batches(8).unwrap(), 0);
        let refused = |starts: Vec<u32>| {
            let tokens = Rc::new((0..10).collect::<Vec<u32>>());
            Dataset::from_documents(tokens, starts, options).unwrap_err().message
        };
        for starts in [vec![], vec![1, 4], vec![0, 5, 4], vec![0, 11]] {
            assert!(refused(starts).contains("do not lie end to end"));
        }
        assert!(refused((0..10).collect()).contains("none of these has a token to learn"));
    }

    #[test]
    fn documents_without_a_token_to_learn_are_not_drawn() {
        let tokens: Vec<u32> = (0..40).collect();
        let learned = (0..40).map(|i| i / 4 % 3 == 1).collect();
        let source = Rc::new(MaskedTokens { tokens: tokens.clone(), learned });
        let options = DatasetOptions { validation_fraction: 0.5, ..DatasetOptions::default() };
        let starts: Vec<u32> = (0..10).map(|i| i * 4).collect();
        let data = Dataset::from_documents(source, starts.clone(), options).unwrap();
        for index in 0..20 {
            let batch = data.batch(0, index, 3).unwrap();
            assert_eq!(batch.counted(), 3, "{batch:?}");
            assert!([4, 16].contains(&batch.tokens[0]), "{batch:?}");
        }
        assert_eq!(data.validation_batches(3).unwrap(), 1);
        assert_eq!(data.validation_batch(0, 3).unwrap().tokens, [28, 29, 30]);
        let none = Rc::new(MaskedTokens { tokens, learned: vec![false; 40] });
        let error = Dataset::from_documents(none, starts, options).unwrap_err();
        assert!(error.message.contains("none of these has a token to learn"), "{}", error.message);
    }

    #[test]
    fn one_document_is_for_validation_unless_none_is_wanted() {
        let refused = |tokens: u32, validation_fraction| {
            let options = DatasetOptions { validation_fraction, ..DatasetOptions::default() };
            let tokens = Rc::new((0..tokens).collect::<Vec<u32>>());
            Dataset::from_documents(tokens, vec![0], options).map(drop).map_err(|e| e.message)
        };
        let message = refused(10, 0.1).unwrap_err();
        assert!(message.starts_with("of 1 documents 0 are for training"), "{message}");
        assert!(message.ends_with("for training, or validationFraction: 0"), "{message}");
        assert_eq!(refused(10, 0.0), Ok(()));
        let message = refused(1, 0.0).unwrap_err();
        assert!(message.ends_with("give more documents for training"), "{message}");
    }
}
