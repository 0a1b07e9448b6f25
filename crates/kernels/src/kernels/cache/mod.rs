//! The key-value cache: appending rows to it, expanding it for kernels that read f32.

#[cfg(feature = "testing")]
pub(crate) mod cases;
#[cfg(feature = "testing")]
pub(crate) mod twin;

use super::compose::{Composer, Grid, Kernel, Spec, read, read_write, uniform};
use super::modules::{cache_rows, cache_sizes, key_rows};
use super::shape::AttentionShape;
use crate::caps::Capabilities;
use crate::error::Result;
use crate::format::KvCache;

/// Rows of a cache for queries that see the last `window` positions, when at most `chunk` positions
/// are appended at a time: the last of these must not take the place of what the first one sees.
pub const fn ring_rows(window: usize, chunk: usize) -> usize {
    window.saturating_add(chunk).saturating_sub(1)
}

/// Key and value heads of fused rows into the cache. Grid: an invocation an element, or for the packed forms a vector of
/// four.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheAppend {
    pub shape: AttentionShape,
    pub cache: KvCache,
}

impl Spec for CacheAppend {
    fn name(&self) -> &'static str {
        "cache_append_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        append(caps, *self, (self.shape, self.cache), false)
    }
}

/// Rows of texts of their own, each behind its text's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheAppendSeveral {
    pub shape: AttentionShape,
    pub cache: KvCache,
}

impl Spec for CacheAppendSeveral {
    fn name(&self) -> &'static str {
        "cache_append_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        append(caps, *self, (self.shape, self.cache), true)
    }
}

fn append(
    caps: &Capabilities,
    spec: impl Spec,
    (shape, cache): (AttentionShape, KvCache),
    several: bool,
) -> Result<Kernel> {
    let composer = key_rows(Composer::flat(caps, spec)?, shape.ring)
        .size("STRIDE", shape.stride())
        .size("KEY_OFFSET", shape.key_offset());
    let mut bindings = vec![read("qkv"), read_write("cache"), uniform("step")];
    bindings.extend(several.then_some(read("documents")));
    let composer = composer.when("BATCHED", several);
    let width = shape.cache_stride();
    let file = match cache {
        KvCache::F32 => {
            let composer = composer.size("CACHE_STRIDE", width);
            return composer.by_row(caps, "04_cache_append", &bindings, width);
        }
        KvCache::F16 => "04_cache_append_f16",
        KvCache::Int8 => "04_cache_append_int8",
    };
    let composer = cache_sizes(composer, cache, &shape).size("VECTORS", shape.head_dim / 4);
    let mut kernel = composer.by_row(caps, file, &bindings, width / 4)?;
    kernel.variant = format!("flat, {}", cache.name());
    kernel.reason = "one invocation per vector of four elements".into();
    Ok(kernel)
}

/// Workgroups of [`CacheExpand`]: enough for any GPU, each strides over the cache.
const EXPAND_GROUPS: u32 = 1024;

/// The rows in use of a packed cache as f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheExpand {
    pub shape: AttentionShape,
    pub cache: KvCache,
}

impl Spec for CacheExpand {
    fn name(&self) -> &'static str {
        "cache_expand_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { shape, cache } = *self;
        let composer = key_rows(Composer::flat(caps, *self)?, shape.ring);
        let composer = composer.size("VECTORS", shape.head_dim / 4);
        cache_rows(composer, cache, &shape).module("04_cache_expand").finish(
            caps,
            &[read_write("rows"), read("cache"), uniform("step")],
            Grid::Fixed { x: if caps.software { 16 } else { EXPAND_GROUPS }, y: 1 },
            cache.name(),
            "a fixed grid that strides over the rows in use, whose number is known at run time",
        )
    }
}
