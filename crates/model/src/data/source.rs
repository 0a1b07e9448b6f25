//! Where a dataset's tokens are.

use super::IGNORE_INDEX;
use std::fmt::Debug;
use std::ops::Range;

/// The tokens of a dataset, however and wherever they are kept. A page keeps them in JavaScript, in the
/// narrowest width that fits, so that the module's memory holds one batch of them at a time.
pub trait TokenSource: Debug {
    /// Tokens in all.
    fn len(&self) -> usize;

    /// Appends the tokens of a range.
    fn read(&self, range: Range<usize>, into: &mut Vec<u32>);

    /// Appends the tokens of a range as targets: [`IGNORE_INDEX`] where a token is not to be learned.
    fn read_targets(&self, range: Range<usize>, into: &mut Vec<u32>) {
        self.read(range, into);
    }

    /// Whether a token of the range is to be learned.
    fn learns(&self, range: Range<usize>) -> bool {
        !range.is_empty()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl TokenSource for Vec<u32> {
    fn len(&self) -> usize {
        Vec::len(self)
    }

    fn read(&self, range: Range<usize>, into: &mut Vec<u32>) {
        into.extend_from_slice(&self[range]);
    }
}

/// Tokens of which only some are to be learned, such as the answers of conversations.
#[derive(Clone, Debug)]
pub struct MaskedTokens {
    /// The ids.
    pub tokens: Vec<u32>,
    /// Whether each token is a target.
    pub learned: Vec<bool>,
}

impl TokenSource for MaskedTokens {
    fn len(&self) -> usize {
        self.tokens.len()
    }

    fn read(&self, range: Range<usize>, into: &mut Vec<u32>) {
        into.extend_from_slice(&self.tokens[range]);
    }

    fn read_targets(&self, range: Range<usize>, into: &mut Vec<u32>) {
        let target = |i: usize| if self.learned[i] { self.tokens[i] } else { IGNORE_INDEX };
        into.extend(range.map(target));
    }

    fn learns(&self, range: Range<usize>) -> bool {
        self.learned[range].contains(&true)
    }
}
