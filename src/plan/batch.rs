//! How a batch lies in its buffer.

use super::{Buffer, Slice};
use crate::layout::ALIGN;

/// Where the parts of a batch lie in [`Buffer::Batch`], in u32 elements: each part is padded to a
/// binding's alignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLayout {
    /// Elements reserved for each part.
    pub padded: usize,
}

impl BatchLayout {
    pub fn new(tokens: usize) -> Self {
        Self { padded: tokens.next_multiple_of(ALIGN) }
    }

    fn slice(&self, part: usize, parts: usize) -> Slice {
        let bytes = self.padded as u64 * 4;
        Slice::new(Buffer::Batch, part as u64 * bytes, parts as u64 * bytes)
    }

    pub fn tokens(&self) -> Slice {
        self.slice(0, 1)
    }

    pub fn targets(&self) -> Slice {
        self.slice(1, 1)
    }

    /// Positions sorted by token.
    pub fn order(&self) -> Slice {
        self.slice(2, 1)
    }

    /// Document starts, then ends.
    pub fn documents(&self) -> Slice {
        self.slice(3, 2)
    }

    pub fn bytes(&self) -> u64 {
        5 * self.padded as u64 * 4
    }
}
