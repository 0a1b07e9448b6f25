// The key-value cache in f16, two elements per word. A row is key heads | value heads, VECTORS vectors
// of two words per head.
@group(0) @binding(1) var<storage, read> cache: array<vec2<u32>>;

fn cache_vector(row: u32, vector: u32) -> vec4<f32> {
  let words = cache[row * CACHE_VECTORS + vector];
  return vec4(unpack2x16float(words.x), unpack2x16float(words.y));
}

// Factor of a head's vectors; heads of values follow those of keys.
fn cache_scale(row: u32, head: u32) -> f32 {
  return 1.0;
}
