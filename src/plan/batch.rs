//! How a batch lies in its buffer.

use super::{Buffer, Slice};
use crate::caps::ALIGN;

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
        slice(self.padded, part, parts)
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

/// The same for a chunk of a prompt, which is one document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptLayout {
    padded: usize,
}

impl PromptLayout {
    pub fn new(chunk: usize) -> Self {
        Self { padded: chunk.next_multiple_of(ALIGN) }
    }

    pub fn tokens(&self) -> Slice {
        slice(self.padded, 0, 1)
    }

    pub fn targets(&self) -> Slice {
        slice(self.padded, 1, 1)
    }

    /// Zeros, never written: the document starts at its first position.
    pub fn documents(&self) -> Slice {
        slice(self.padded, 2, 1)
    }

    pub fn bytes(&self) -> u64 {
        3 * self.padded as u64 * 4
    }
}

fn slice(padded: usize, part: usize, parts: usize) -> Slice {
    let bytes = padded as u64 * 4;
    Slice::new(Buffer::Batch, part as u64 * bytes, parts as u64 * bytes)
}
