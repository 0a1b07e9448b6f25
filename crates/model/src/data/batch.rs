//! A batch: one row of tokens into which any number of documents is packed.

use crate::error::{Error, Result};

/// A target that does not count in the loss.
pub const IGNORE_INDEX: u32 = 0xffff_ffff;

/// Tokens, what each should predict, and where each position's document starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    pub tokens: Vec<u32>,
    pub targets: Vec<u32>,
    /// Index in this batch of the first position of each position's document.
    pub documents: Vec<u32>,
}

impl Batch {
    /// A batch of one document unless `documents` says otherwise; check it with [`validate`](Self::validate).
    pub fn new(tokens: Vec<u32>, targets: Vec<u32>, documents: Option<Vec<u32>>) -> Self {
        let documents = documents.unwrap_or_else(|| vec![0; tokens.len()]);
        Self { tokens, targets, documents }
    }

    /// The targets of plain language modelling: each token's target is the next one, and the last has none.
    pub fn next_tokens(tokens: Vec<u32>) -> Self {
        let targets =
            tokens.iter().skip(1).copied().chain([IGNORE_INDEX]).take(tokens.len()).collect();
        Self::new(tokens, targets, None)
    }

    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Targets that count in the loss.
    pub fn counted(&self) -> usize {
        self.targets.iter().filter(|&&t| t != IGNORE_INDEX).count()
    }

    /// Checks everything that kernels take for granted.
    pub fn validate(&self, vocab_size: usize, max_tokens: usize) -> Result<()> {
        let Self { tokens, targets, documents } = self;
        if tokens.is_empty() {
            return Err(Error::tokens(format!(
                "the batch is empty; it must have 1 to {max_tokens} tokens"
            )));
        }
        if tokens.len() > max_tokens {
            return Err(Error::tokens(format!(
                "the batch has {} tokens; at most {max_tokens} (tokensPerStep) fit",
                tokens.len()
            )));
        }
        for (name, length) in [("targets", targets.len()), ("documents", documents.len())] {
            if length != tokens.len() {
                return Err(Error::tokens(format!(
                    "{name} has {length} elements and tokens has {}; the lengths must agree",
                    tokens.len()
                )));
            }
        }
        let out_of_range = |&(_, &id): &(usize, &u32)| id as usize >= vocab_size;
        if let Some((i, id)) = tokens.iter().enumerate().find(out_of_range) {
            return Err(Error::tokens(format!(
                "tokens[{i}] is {id}; it must be below vocab_size ({vocab_size}), which has to hold every \
                 id of the tokenizer"
            )));
        }
        let mut counted = targets.iter().enumerate().filter(|&(_, &id)| id != IGNORE_INDEX);
        if let Some((i, id)) = counted.find(out_of_range) {
            return Err(Error::tokens(format!(
                "targets[{i}] is {id}; it must be below vocab_size ({vocab_size}), \
                 or {IGNORE_INDEX} to be ignored"
            )));
        }
        validate_documents(documents)
    }
}

/// Every position must name its own document's first position: either itself, or the document of the position before.
fn validate_documents(documents: &[u32]) -> Result<()> {
    for (i, &start) in documents.iter().enumerate() {
        let problem = if start as usize > i {
            "points forward"
        } else if start as usize != i && start != documents[i - 1] {
            "is inside another document"
        } else {
            continue;
        };
        let allowed = match i {
            0 => "0".to_owned(),
            _ => format!("{} (the document goes on) or {i} (a new one starts)", documents[i - 1]),
        };
        return Err(Error::tokens(format!(
            "documents[{i}] is {start}, which {problem}; it must be {allowed}"
        )));
    }
    Ok(())
}

/// Exclusive end of each position's document: what the key and value side of attention needs.
pub fn document_ends(documents: &[u32]) -> Vec<u32> {
    let mut ends = vec![0; documents.len()];
    write_document_ends(documents, &mut ends);
    ends
}

/// The same into a list of that length.
pub fn write_document_ends(documents: &[u32], ends: &mut [u32]) {
    let mut end = documents.len() as u32;
    for i in (0..documents.len()).rev() {
        ends[i] = end;
        if documents[i] as usize == i {
            end = i as u32;
        }
    }
}

/// Positions ordered by token, equal tokens in the order of their positions: the embedding's
/// backward pass sums the run of a token in one invocation per column, and so in a fixed order.
pub fn sorted_by_token(tokens: &[u32]) -> Vec<u32> {
    let mut order = vec![0; tokens.len()];
    write_sorted_by_token(tokens, &mut order, &mut vec![0; tokens.len()]);
    order
}

/// [`sorted_by_token`] into `order`. `order` and `scratch` have the length of `tokens`.
///
/// A radix sort by bytes, the lowest first: it is stable and allocates nothing. In the module, which is
/// optimised for size, sorting 256 tokens by comparisons took a quarter of the host's time for a small step. A closure
/// for the digit is not inlined there.
pub fn write_sorted_by_token(tokens: &[u32], order: &mut [u32], scratch: &mut [u32]) {
    let largest = tokens.iter().fold(1, |largest, &token| largest.max(token));
    let bytes = (u32::BITS - largest.leading_zeros()).div_ceil(8);
    // They change places after each byte, and the last turn writes into `order`.
    let (mut from, mut to) = if bytes % 2 == 0 { (order, scratch) } else { (scratch, order) };
    (0..).zip(&mut *from).for_each(|(i, position)| *position = i);
    for shift in (0..bytes).map(|byte| 8 * byte) {
        // Where the next position goes whose token has this byte.
        let mut places = [0u32; 256];
        for &token in tokens {
            places[usize::from((token >> shift) as u8)] += 1;
        }
        let mut before = 0;
        for place in &mut places {
            before += std::mem::replace(place, before);
        }
        for &position in &*from {
            let place = &mut places[usize::from((tokens[position as usize] >> shift) as u8)];
            to[*place as usize] = position;
            *place += 1;
        }
        std::mem::swap(&mut from, &mut to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    #[test]
    fn good_batches_pass() {
        Batch::next_tokens(vec![5]).validate(6, 1).unwrap();
        let batch =
            Batch::new(vec![1, 2, 3, 4, 5], vec![IGNORE_INDEX; 5], Some(vec![0, 0, 2, 3, 3]));
        batch.validate(6, 5).unwrap();
        assert_eq!(batch.counted(), 0);
        let shifted = Batch::next_tokens(vec![1, 2, 3]);
        assert_eq!((shifted.targets.as_slice(), shifted.counted()), (&[2, 3, IGNORE_INDEX][..], 2));
        assert!(Batch::next_tokens(vec![]).is_empty());
    }

    #[test]
    fn bad_batches_name_index_and_value() {
        let batch = |tokens: &[u32], targets: &[u32], documents: &[u32]| Batch {
            tokens: tokens.to_vec(),
            targets: targets.to_vec(),
            documents: documents.to_vec(),
        };
        for (bad, needles) in [
            (batch(&[], &[], &[]), ["empty", "1 to 4"]),
            (batch(&[1; 5], &[1; 5], &[0; 5]), ["5 tokens", "at most 4"]),
            (batch(&[1, 2], &[1], &[0, 0]), ["targets has 1", "tokens has 2"]),
            (batch(&[1, 2], &[1, 2], &[0]), ["documents has 1", "tokens has 2"]),
            (batch(&[1, 9], &[1, 2], &[0, 0]), ["tokens[1] is 9", "vocab_size (9)"]),
            (batch(&[1, IGNORE_INDEX], &[1, 2], &[0, 0]), ["tokens[1]", "vocab_size (9)"]),
            (batch(&[1, 2], &[10, 2], &[0, 0]), ["targets[0] is 10", "ignored"]),
            (batch(&[1, 2], &[1, 2], &[1, 1]), ["documents[0] is 1", "points forward"]),
            (batch(&[1, 2, 3], &[1, 2, 3], &[0, 2, 2]), ["documents[1] is 2", "points forward"]),
            (batch(&[1, 2, 3], &[1, 2, 3], &[0, 1, 0]), ["documents[2] is 0", "inside another"]),
            (batch(&[1; 4], &[1; 4], &[0, 0, 1, 1]), ["documents[2] is 1", "inside another"]),
        ] {
            let error = bad.validate(9, 4).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidTokens);
            assert!(needles.iter().all(|n| error.message.contains(n)), "{}", error.message);
        }
    }

    #[test]
    fn ends_close_each_document() {
        assert_eq!(document_ends(&[0, 0, 2, 3, 3, 3]), [2, 2, 3, 6, 6, 6]);
        assert_eq!(document_ends(&[0]), [1]);
        assert!(document_ends(&[]).is_empty());
    }

    #[test]
    fn sorting_by_token_is_stable() {
        assert_eq!(sorted_by_token(&[3, 1, 3, 0, 1, 3]), [3, 1, 4, 0, 2, 5]);
        assert_eq!(sorted_by_token(&[0, 0]), [0, 1]);
        assert!(sorted_by_token(&[]).is_empty());
        // Tokens of one, two, three and four bytes.
        for largest in [255, 256, 0xffff, 0x1_0000, 0xff_ffff, 0x100_0000, u32::MAX] {
            let token = |i: u32| i.wrapping_mul(2_654_435_761) % (largest / 3) * (1 + i % 3);
            let mut tokens: Vec<u32> = (0..700).map(|i| token(i % 400)).collect();
            tokens[13] = largest;
            let mut expected: Vec<u32> = (0..700).collect();
            expected.sort_by_key(|&i| tokens[i as usize]);
            assert_eq!(sorted_by_token(&tokens), expected, "up to {largest}");
        }
    }
}
