//! How values are stored and written, as far as crates and modules share it.

pub use tinyloom_numbers::{GROUP, WeightFormat, pack};

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
