//! How values are stored and written, as far as crates and modules share it.

mod pack;

pub use pack::{holds_codes, pack, pack_codes, unpack};

use serde::{Deserialize, Serialize};

/// How a kernel writes a gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteMode {
    Overwrite,
    Add,
    /// Overwrites on the first micro-step of an accumulation, adds on the others.
    AddAfterFirst,
}

impl WriteMode {
    /// The constant of `lib/write_mode.wgsl`.
    pub const fn constant(self) -> u32 {
        self as u32
    }
}

/// How the elements of a tensor are stored. Sums and softmax statistics are f32 either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Element {
    #[default]
    F32,
    /// Two elements per word; needs no feature.
    F16,
}

impl Element {
    /// F16 for halves, else f32.
    pub const fn halved(half: bool) -> Self {
        if half { Self::F16 } else { Self::F32 }
    }

    /// Bytes of one element.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
        }
    }
}

/// How keys and values are kept between tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KvCacheFormat {
    #[default]
    F32,
    /// Two elements per word; needs no feature.
    F16,
    /// Signed bytes with one f32 scale for each row and head.
    Int8,
}

impl KvCacheFormat {
    pub const ALL: [Self; 3] = [Self::F32, Self::F16, Self::Int8];

    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Int8 => "int8",
        }
    }
}

/// How the matrices of a model are read when it infers, or how it holds them. Norms and biases are always f32,
/// and so are embeddings of a model that holds its matrices in f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WeightFormat {
    #[default]
    F32,
    /// Two elements per word; needs no feature.
    F16,
    /// Signed bytes, `GROUP` neighbours of a row to an f32 scale: the largest magnitude over 127.
    Int8,
    /// Four bits, `GROUP` neighbours of a row to an f32 scale: the element of the largest magnitude
    /// is −8 of them, as in ggml's Q4_0.
    Int4,
    /// Five bits, `GROUP` neighbours of a row to 16 bits with a width and a zero point, which two groups have in a word:
    /// 5.5 bits a weight. Embedding and head, and rows of no whole pairs of groups, are signed bytes.
    Int5,
}

/// Neighbours in a row that share a scale, and codes to a factor where a file has codes.
pub const GROUP: usize = 32;

impl WeightFormat {
    pub const ALL: [Self; 5] = [Self::F32, Self::F16, Self::Int8, Self::Int4, Self::Int5];

    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Int8 => "int8",
            Self::Int4 => "int4",
            Self::Int5 => "int5",
        }
    }

    /// Neighbours in a row that are packed together.
    pub const fn group(self) -> usize {
        match self {
            Self::Int5 => 2 * GROUP,
            _ => GROUP,
        }
    }

    /// Words that a packed matrix has for each group in each of its parts, which lie one after the other: codes, where
    /// a code is longer than four bits its fifth ones, and what they are scaled by.
    pub const fn parts(self) -> &'static [usize] {
        match self {
            Self::F32 => &[32],
            Self::F16 => &[16],
            Self::Int8 => &[8, 1],
            Self::Int4 => &[4, 1],
            Self::Int5 => &[8, 2, 1],
        }
    }

    /// The word at which a part of so many elements begins; that behind the last part for the number of parts.
    pub const fn part_at(self, elements: usize, part: usize) -> usize {
        let (mut words, mut before) = (0, 0);
        while before < part {
            words += self.parts()[before];
            before += 1;
        }
        elements / self.group() * words
    }

    /// The words of codes that are read together, for so many elements.
    pub const fn code_words(self, elements: usize) -> usize {
        elements * self.parts()[0] / self.group()
    }

    /// Whether rows of this many elements are packed: whole groups are, others stay f32.
    pub const fn packs(self, columns: usize) -> bool {
        !matches!(self, Self::F32) && columns.is_multiple_of(self.group())
    }

    /// The format of a matrix in a model of this one: `table` is an embedding or a head, whose errors reach every
    /// token.
    pub const fn of_matrix(self, columns: usize, table: bool) -> Self {
        match self {
            Self::Int5 if table || !self.packs(columns) => Self::Int8,
            format => format,
        }
    }

    /// Bytes of a packed matrix, in whole vectors of 16.
    pub const fn bytes(self, rows: usize, columns: usize) -> u64 {
        let words = self.part_at(rows * columns, self.parts().len());
        16 * words.div_ceil(4) as u64
    }
}
