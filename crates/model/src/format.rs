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
}

/// Neighbours in a row that share a scale.
pub const GROUP: usize = 32;

impl WeightFormat {
    pub const ALL: [Self; 4] = [Self::F32, Self::F16, Self::Int8, Self::Int4];

    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Int8 => "int8",
            Self::Int4 => "int4",
        }
    }

    /// Whether rows of this many elements are packed: whole groups are, others stay f32.
    pub const fn packs(self, columns: usize) -> bool {
        !matches!(self, Self::F32) && columns.is_multiple_of(GROUP)
    }

    /// Elements of a vector of 16 bytes.
    pub const fn elements(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 => 8,
            Self::Int8 => 16,
            Self::Int4 => 32,
        }
    }

    /// Vectors of 16 bytes before a packed matrix's scales.
    pub const fn vectors(self, elements: usize) -> usize {
        elements / self.elements()
    }

    /// Bytes of a packed matrix: its rows, then the scales of all groups.
    pub const fn bytes(self, rows: usize, columns: usize) -> u64 {
        let elements = rows * columns;
        let scales = match self {
            Self::F32 | Self::F16 => 0,
            Self::Int8 | Self::Int4 => (elements / GROUP).div_ceil(4),
        };
        16 * (self.vectors(elements) + scales) as u64
    }
}
