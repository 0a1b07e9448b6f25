// The key-value cache in signed bytes. A row of CACHE_ROW words is key heads | value heads, VECTORS
// words per head and CACHE_VECTORS in all, then the heads' scales as f32, in the same order.
@group(0) @binding(1) var<storage, read> cache: array<u32>;

// Without its head's scale.
fn cache_vector(row: u32, vector: u32) -> vec4<f32> {
  let word = vec4(cache[row * CACHE_ROW + vector]);
  return vec4<f32>(bitcast<vec4<i32>>(word << vec4(24u, 16u, 8u, 0u)) >> vec4(24u));
}

// Factor of a head's vectors; heads of values follow those of keys.
fn cache_scale(row: u32, head: u32) -> f32 {
  return bitcast<f32>(cache[row * CACHE_ROW + CACHE_VECTORS + head]);
}
