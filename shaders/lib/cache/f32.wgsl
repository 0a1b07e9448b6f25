// The key-value cache in f32. A row is key heads | value heads, VECTORS vectors per head.
@group(0) @binding(1) var<storage, read> cache: array<vec4<f32>>;

fn cache_vector(row: u32, vector: u32) -> vec4<f32> {
  return cache[row * CACHE_VECTORS + vector];
}

// Factor of a head's vectors; heads of values follow those of keys.
fn cache_scale(row: u32, head: u32) -> f32 {
  return 1.0;
}
