//! The layout of a batch in its buffer.

use super::{Buffer, Slice};
use crate::caps::ALIGN;
use crate::kernels::STRIP;

/// Where the parts of a batch are in [`Buffer::Batch`], in u32 elements. Each part is padded to a binding's alignment.
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

    /// [`Self::documents`], and tables of the tiles of attention's backward pass.
    pub fn tables(&self) -> Slice {
        self.slice(3, 3)
    }

    /// Without tables.
    pub fn bytes(&self) -> u64 {
        5 * self.padded as u64 * 4
    }
}

/// Counts each head's tiles of probabilities in attention's backward pass by products. A strip of queries has those
/// from the first key on that its first query sees. `starts` has each query's document start. Also fills tables that
/// are not empty: `before` with the tiles before a strip less its first tile, `strip_of` with a tile's strip, then
/// `u32::MAX`.
pub fn count_tiles(starts: &[u32], before: &mut [u32], strip_of: &mut [u32]) -> usize {
    strip_of.fill(u32::MAX);
    let mut count = 0;
    for (strip, starts) in starts.chunks(STRIP).enumerate() {
        let first = starts[0] as usize / STRIP;
        let end = count + strip + 1 - first;
        if let Some(before) = before.get_mut(strip) {
            *before = (count as u32).wrapping_sub(first as u32);
        }
        if let Some(tiles) = strip_of.get_mut(count..end) {
            tiles.fill(strip as u32);
        }
        count = end;
    }
    count
}

/// Where the parts of a chunk of a prompt are in [`Buffer::Batch`]. A chunk is one document.
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

    /// Without tables.
    pub fn bytes(&self) -> u64 {
        3 * self.padded as u64 * 4
    }
}

fn slice(padded: usize, part: usize, parts: usize) -> Slice {
    let bytes = padded as u64 * 4;
    Slice::new(Buffer::Batch, part as u64 * bytes, parts as u64 * bytes)
}
