//! Shared modules that read and write what a format or an option says.

use super::compose::Composer;
use super::shape::{AttentionShape, Scores};
use crate::config::Activation;
use crate::format::{Element, KvCacheFormat, WeightFormat};

/// The module that defines `Quad`, `pack_quad` and `unpack_quad`.
pub(super) fn quads(composer: Composer, element: Element) -> Composer {
    composer.when("F16", element == Element::F16).module("lib/quad")
}

/// The sizes of a cache's rows: vectors of four elements, and with scales all its words.
pub(super) fn cache_sizes(
    composer: Composer,
    cache: KvCacheFormat,
    shape: &AttentionShape,
) -> Composer {
    let composer = composer.size("CACHE_VECTORS", shape.cache_stride() / 4);
    match cache {
        KvCacheFormat::F32 | KvCacheFormat::F16 => composer,
        KvCacheFormat::Int8 => composer.size("CACHE_ROW", shape.row_words(cache)),
    }
}

/// The module through which kernels read a cache, with its constants.
pub(super) fn cache_rows(
    composer: Composer,
    cache: KvCacheFormat,
    shape: &AttentionShape,
) -> Composer {
    cache_flags(cache_sizes(composer, cache, shape), cache).module("lib/cache/rows")
}

/// How a cache's elements are stored.
pub(super) fn cache_flags(composer: Composer, cache: KvCacheFormat) -> Composer {
    composer
        .when("CACHE_F16", cache == KvCacheFormat::F16)
        .when("CACHE_INT8", cache == KvCacheFormat::Int8)
}

/// Elements of a packed row that kernels read together.
pub(super) const UNIT: usize = 8;

/// The module through which kernels read a packed matrix of `elements` elements, with its constants.
pub(super) fn packed_matrix(composer: Composer, format: WeightFormat, elements: usize) -> Composer {
    if format == WeightFormat::F32 {
        return composer;
    }
    let composer = composer.unrolled("QUADS", UNIT / 4).size("SCALES", elements / UNIT);
    packed_flags(composer, format).module("lib/weights")
}

/// The module through which kernels read units of a matrix of rows of `k` columns. In f32 a unit is a vector of four
/// elements.
pub(super) fn matrix_units(
    composer: Composer,
    format: WeightFormat,
    (rows, k): (usize, usize),
) -> Composer {
    if format.packs(k) {
        return packed_matrix(composer, format, rows * k);
    }
    packed_flags(composer.unrolled("QUADS", 1), WeightFormat::F32).module("lib/weights")
}

/// What `lib/weights.wgsl` asks.
fn packed_flags(composer: Composer, format: WeightFormat) -> Composer {
    composer
        .when("PACKED_F16", format == WeightFormat::F16)
        .when("PACKED_INT8", format == WeightFormat::Int8)
        .when("PACKED_INT4", format == WeightFormat::Int4)
}

/// The module that says which row a position has, with its constants.
pub(super) fn key_rows(composer: Composer, ring: Option<usize>) -> Composer {
    composer
        .flag("RINGED", ring.is_some())
        .size("RING", ring.unwrap_or(1))
        .module("lib/cache/key_row")
}

/// Whether scores are capped, and at what.
pub(super) fn soft_cap(composer: Composer, Scores { soft_cap, .. }: Scores) -> Composer {
    composer
        .flag("SOFT_CAPPED", soft_cap.is_some())
        .float("SOFT_CAP", soft_cap.map_or(1.0, |cap| cap.0 as f32))
}

/// The constants by which decode attention makes scores of products.
pub(super) fn scores(composer: Composer, shape: &AttentionShape, scores: Scores) -> Composer {
    let base = if scores.soft_cap.is_some() { 1.0 } else { std::f64::consts::LOG2_E };
    soft_cap(composer, scores).float("SCORE_SCALE", (base * scores.factor(shape)) as f32)
}

/// Adds `activate` and `activate_derivative`.
pub(super) fn activation_module(composer: Composer, activation: Activation) -> Composer {
    composer
        .when("SILU", activation == Activation::Silu)
        .when("GELU", activation == Activation::Gelu)
        .module("lib/activation")
}
