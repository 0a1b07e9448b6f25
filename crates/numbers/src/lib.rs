//! A part of [tinyloom](https://docs.rs/tinyloom), without a promise of stability of its own.
//!
//! How a model's numbers are stored: the formats of packed matrices, and conversions between them and those of files. Loading
//! a model converts every weight. So this crate is compiled for speed where wasm is compiled for size, and there it uses
//! 128-bit vectors, which all browsers with WebGPU have.

#![warn(missing_debug_implementations)]

mod blocks;
mod decode;
mod pack;

pub use blocks::BlockType;
pub use decode::{all_finite, from_bf16, from_f16, from_f32, halves_are_finite};
pub use pack::{holds_codes, pack, pack_codes, scaled, unpack};

use serde::{Deserialize, Serialize};

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
