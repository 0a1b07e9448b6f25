//! The key-value cache: appending rows to it, expanding it for kernels that read f32.

#[cfg(feature = "testing")]
pub(crate) mod cases;
#[cfg(feature = "testing")]
pub(crate) mod twin;

use super::compose::{Composer, Grid, Kernel, Spec, read, read_write, uniform};
use super::modules::{cache_flags, cache_rows, cache_sizes, key_rows};
use super::shape::CacheRows;
use crate::caps::Capabilities;
use crate::error::Result;
use crate::format::KvCacheFormat;

/// Rows of a cache for queries that see the last `window` positions, when at most `chunk` positions
/// are appended at a time: the last of these must not take the place of what the first one sees.
pub const fn ring_rows(window: usize, chunk: usize) -> usize {
    window.saturating_add(chunk).saturating_sub(1)
}

/// Key and value heads of fused rows into the cache. `batched`: each row is of a text of its own, and follows the rows
/// of that text. Grid: an invocation for each vector of four elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheAppend {
    pub rows: CacheRows,
    pub cache: KvCacheFormat,
    pub batched: bool,
}

impl Spec for CacheAppend {
    fn name(&self) -> &'static str {
        "cache_append_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { rows: CacheRows { shape, ring }, cache, batched } = *self;
        let composer = key_rows(Composer::flat(caps, *self)?, ring)
            .size("STRIDE", shape.stride())
            .size("KEY_OFFSET", shape.key_offset())
            .size("VECTORS", shape.head_dim / 4)
            .when("BATCHED", batched);
        let mut bindings = vec![read("qkv"), read_write("cache"), uniform("step")];
        bindings.extend(batched.then_some(read("documents")));
        let composer = cache_flags(cache_sizes(composer, cache, &shape), cache);
        let width = shape.cache_stride() / 4;
        let mut kernel = composer.by_row(caps, "04_cache_append", &bindings, width)?;
        kernel.variant = format!("flat, {}", cache.name());
        kernel.reason = "one invocation per vector of four elements".into();
        Ok(kernel)
    }
}

/// Workgroups of [`CacheExpand`]: enough for any GPU, each strides over the cache.
const EXPAND_GROUPS: u32 = 1024;

/// The rows in use of a packed cache as f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheExpand {
    pub rows: CacheRows,
    pub cache: KvCacheFormat,
}

impl Spec for CacheExpand {
    fn name(&self) -> &'static str {
        "cache_expand_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { rows: CacheRows { shape, ring }, cache } = *self;
        let composer = key_rows(Composer::flat(caps, *self)?, ring);
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
