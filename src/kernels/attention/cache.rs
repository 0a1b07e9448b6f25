//! The key-value cache: its forms, appending rows to it, expanding it for kernels that read f32.

use crate::caps::Capabilities;
use crate::error::Result;
use crate::format::KvCache;
use crate::kernels::compose::{Grid, Kernel, read, read_write, uniform};
use crate::kernels::elementwise::{composer, finish};
use crate::kernels::modules::key_rows;
use crate::kernels::shape::AttentionShape;
use crate::kernels::spec::KernelSpec;

/// Rows of a cache for queries that see the last `window` positions, when at most `chunk` positions
/// are appended at a time: the last of these must not take the place of what the first one sees.
pub const fn ring_rows(window: usize, chunk: usize) -> usize {
    window.saturating_add(chunk).saturating_sub(1)
}

/// `cache_append_forward`: key and value heads of fused rows into the cache. Grid: an invocation an
/// element, or for the packed forms a vector of four.
pub fn cache_append(caps: &Capabilities, shape: AttentionShape, cache: KvCache) -> Result<Kernel> {
    append(caps, KernelSpec::CacheAppend { shape, cache }, shape, cache, false)
}

/// [`cache_append`] of rows of texts of their own. `documents` is bound last.
pub fn cache_append_several(
    caps: &Capabilities,
    shape: AttentionShape,
    cache: KvCache,
) -> Result<Kernel> {
    append(caps, KernelSpec::CacheAppendSeveral { shape, cache }, shape, cache, true)
}

fn append(
    caps: &Capabilities,
    spec: KernelSpec,
    shape: AttentionShape,
    cache: KvCache,
    several: bool,
) -> Result<Kernel> {
    let composer = key_rows(composer(caps, spec)?, shape.ring)
        .size("STRIDE", shape.stride())
        .size("KEY_OFFSET", shape.key_offset());
    let mut bindings = vec![read("qkv"), read_write("cache"), uniform("step")];
    if several {
        bindings.push(read("documents"));
    }
    let composer = composer.when("BATCHED", several);
    let width = shape.cache_stride();
    if cache == KvCache::F32 {
        let composer = composer.size("CACHE_STRIDE", width).module("04_cache_append");
        return finish(composer, caps, &bindings, width);
    }
    let composer =
        cache.sizes(composer, &shape).size("VECTORS", shape.head_dim / 4).module(match cache {
            KvCache::Int8 => "04_cache_append_int8",
            _ => "04_cache_append_f16",
        });
    let mut kernel = finish(composer, caps, &bindings, width / 4)?;
    kernel.variant = format!("flat, {}", cache.name());
    kernel.reason = "one invocation per vector of four elements".into();
    Ok(kernel)
}

/// Workgroups of `cache_expand_forward`: enough for any GPU, each strides over the cache.
const EXPAND_GROUPS: u32 = 1024;

/// `cache_expand_forward`: the rows in use of a packed cache as f32. Bindings: rows, cache, step.
pub fn cache_expand(caps: &Capabilities, shape: AttentionShape, cache: KvCache) -> Result<Kernel> {
    let composer = key_rows(composer(caps, KernelSpec::CacheExpand { shape, cache })?, shape.ring)
        .size("VECTORS", shape.head_dim / 4);
    cache.module(composer, &shape).module("04_cache_expand").finish(
        caps,
        &[read_write("rows"), read("cache"), uniform("step")],
        Grid::Fixed { x: if caps.software { 16 } else { EXPAND_GROUPS }, y: 1 },
        cache.name(),
        "a fixed grid that strides over the rows in use, whose number is known at run time",
    )
}
