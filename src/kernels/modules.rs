//! Shared modules that read and write what a format or an option says.

use super::compose::Composer;
use super::shape::AttentionShape;
use crate::config::Activation;
use crate::format::{Element, KvCache, WeightFormat};

impl Element {
    /// The module that defines `Quad`, `pack_quad` and `unpack_quad`.
    pub(super) fn module(self, composer: Composer) -> Composer {
        composer.when("F16", self == Self::F16).module("lib/quad")
    }
}

impl KvCache {
    /// The sizes of its rows: vectors of four elements, and with scales all its words.
    pub(super) fn sizes(self, composer: Composer, shape: &AttentionShape) -> Composer {
        let composer = composer.size("CACHE_VECTORS", shape.cache_stride() / 4);
        match self {
            Self::F32 | Self::F16 => composer,
            Self::Int8 => composer.size("CACHE_ROW", self.row_words(shape)),
        }
    }

    /// The module through which kernels read it, with its constants.
    pub(super) fn module(self, composer: Composer, shape: &AttentionShape) -> Composer {
        self.sizes(composer, shape)
            .when("CACHE_F16", self == Self::F16)
            .when("CACHE_INT8", self == Self::Int8)
            .module("lib/cache/rows")
    }
}

/// Elements of a packed row that kernels read together.
pub(super) const UNIT: usize = 8;

impl WeightFormat {
    /// The module through which kernels read a packed matrix of `elements` elements, with its
    /// constants.
    pub(super) fn module(self, composer: Composer, elements: usize) -> Composer {
        if self == Self::F32 {
            return composer;
        }
        self.flags(composer.unrolled("QUADS", UNIT / 4).size("SCALES", elements / UNIT))
            .module("lib/weights")
    }

    /// The same of a matrix of rows of `k` columns, which is read so in f32 too: by vectors of four elements.
    pub(super) fn units(self, composer: Composer, (rows, k): (usize, usize)) -> Composer {
        if self.packs(k) {
            return self.module(composer, rows * k);
        }
        Self::F32.flags(composer.unrolled("QUADS", 1)).module("lib/weights")
    }

    /// What `lib/weights.wgsl` asks.
    fn flags(self, composer: Composer) -> Composer {
        composer
            .when("PACKED_F16", self == Self::F16)
            .when("PACKED_INT8", self == Self::Int8)
            .when("PACKED_INT4", self == Self::Int4)
    }
}

/// The module that says in which row a position lies, with its constants.
pub(super) fn key_rows(composer: Composer, ring: Option<usize>) -> Composer {
    composer
        .flag("RINGED", ring.is_some())
        .size("RING", ring.unwrap_or(1))
        .module("lib/cache/key_row")
}

/// The module that makes decode attention's scores of products, with its constants.
pub(super) fn scores(composer: Composer, shape: &AttentionShape) -> Composer {
    let base = if shape.soft_cap.is_some() { 1.0 } else { std::f64::consts::LOG2_E };
    let scale = base * shape.score_scale();
    composer
        .flag("SOFT_CAPPED", shape.soft_cap.is_some())
        .float("SOFT_CAP", shape.soft_cap.unwrap_or(1.0))
        .float("SCORE_SCALE", scale as f32)
        .module("lib/math")
        .module("lib/attention/decode_score")
}

/// Adds `activate` and `activate_derivative`.
pub(super) fn activation_module(composer: Composer, activation: Activation) -> Composer {
    composer
        .when("SILU", activation == Activation::Silu)
        .when("GELU", activation == Activation::Gelu)
        .module("lib/activation")
}
