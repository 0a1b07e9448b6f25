//! The key-value cache: its forms, appending rows to it, expanding it for kernels that read f32.

use super::attention::AttentionShape;
use super::compose::{Composer, Grid, Kernel, read, read_write, shader, uniform};
use super::elementwise::{composer, finish};
use super::spec::KernelSpec;
use crate::caps::Capabilities;
use crate::error::Result;
use serde::{Deserialize, Serialize};

/// How keys and values are kept between tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KvCache {
    #[default]
    F32,
    /// Two elements per word; needs no feature.
    F16,
    /// Signed bytes with one f32 scale for each row and head.
    Int8,
}

impl KvCache {
    pub const ALL: [Self; 3] = [Self::F32, Self::F16, Self::Int8];

    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Int8 => "int8",
        }
    }

    /// 32-bit words of a cache row.
    pub const fn row_words(self, shape: &AttentionShape) -> usize {
        let elements = shape.cache_stride();
        match self {
            Self::F32 => elements,
            Self::F16 => elements / 2,
            Self::Int8 => elements / 4 + 2 * shape.kv_heads,
        }
    }

    /// The module through which kernels read it.
    pub(super) fn module(self, composer: Composer) -> Composer {
        composer.module(match self {
            Self::F32 => shader!("lib/cache_f32"),
            Self::F16 => shader!("lib/cache_f16"),
            Self::Int8 => shader!("lib/cache_int8"),
        })
    }
}

/// Rows of a cache for queries that see the last `window` positions, when at most `chunk` positions
/// are appended at a time: the last of these must not take the place of what the first one sees.
pub const fn ring_rows(window: usize, chunk: usize) -> usize {
    window.saturating_add(chunk).saturating_sub(1)
}

/// The module that says in which row a position lies, with its constants.
pub(super) fn key_rows(composer: Composer, ring: Option<usize>) -> Composer {
    composer
        .flag("RINGED", ring.is_some())
        .size("RING", ring.unwrap_or(1))
        .module(shader!("lib/key_row"))
}

/// `cache_append_forward`: key and value heads of fused rows into the cache. Grid: an invocation an
/// element, or for the packed forms a vector of four.
pub fn cache_append(caps: &Capabilities, shape: AttentionShape, cache: KvCache) -> Result<Kernel> {
    let composer = key_rows(composer(caps, KernelSpec::CacheAppend { shape, cache })?, shape.ring)
        .size("STRIDE", shape.stride())
        .size("KEY_OFFSET", shape.key_offset());
    let bindings = [read("qkv"), read_write("cache"), uniform("step")];
    let width = shape.cache_stride();
    if cache == KvCache::F32 {
        let composer = composer.size("CACHE_STRIDE", width).module(shader!("04_cache_append"));
        return finish(composer, caps, &bindings, width);
    }
    let composer = composer
        .size("KV_HEADS", shape.kv_heads)
        .size("VECTORS", shape.head_dim / 4)
        .module(shader!("lib/finite"))
        .module(match cache {
            KvCache::Int8 => shader!("04_cache_append_int8"),
            _ => shader!("04_cache_append_f16"),
        });
    let mut kernel = finish(composer, caps, &bindings, width / 4)?;
    kernel.variant = format!("flat, {}", cache.name());
    kernel.reason = "one invocation a vector of four elements".into();
    Ok(kernel)
}

/// Workgroups of `cache_expand_forward`: enough for any GPU, each strides over the cache.
const EXPAND_GROUPS: u32 = 1024;

/// `cache_expand_forward`: the rows in use of a packed cache as f32. Bindings: rows, cache, step.
pub fn cache_expand(caps: &Capabilities, shape: AttentionShape, cache: KvCache) -> Result<Kernel> {
    let composer = key_rows(composer(caps, KernelSpec::CacheExpand { shape, cache })?, shape.ring)
        .size("KV_HEADS", shape.kv_heads)
        .size("VECTORS", shape.head_dim / 4);
    cache.module(composer).module(shader!("04_cache_expand")).finish(
        caps,
        &[read_write("rows"), read("cache"), uniform("step")],
        Grid::Fixed { x: if caps.software { 16 } else { EXPAND_GROUPS }, y: 1 },
        cache.name(),
        "a fixed grid that strides over the rows in use, whose number is known at run time",
    )
}
