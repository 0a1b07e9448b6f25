// The key-value cache, as kernels read it: a row is key heads | value heads, VECTORS vectors per head.
#if CACHE_F16
// The key-value cache in f16, two elements per word. A row is key heads | value heads, VECTORS vectors
// of two words per head.
#operand cache: array<vec2<u32>>

fn cache_vector(row: u32, vector: u32) -> vec4<f32> {
  let words = #cache[row * CACHE_VECTORS + vector];
  return vec4(unpack2x16float(words.x), unpack2x16float(words.y));
}

// Factor of a head's vectors; heads of values follow those of keys.
fn cache_scale(row: u32, head: u32) -> f32 {
  return 1.0;
}
#elif CACHE_INT8
// The key-value cache in signed bytes. A row of CACHE_ROW words is key heads | value heads, VECTORS
// words per head and CACHE_VECTORS in all, then the heads' scales as f32, in the same order.
#operand cache: array<u32>

// Without its head's scale.
fn cache_vector(row: u32, vector: u32) -> vec4<f32> {
  let word = vec4(#cache[row * CACHE_ROW + vector]);
  return vec4<f32>(bitcast<vec4<i32>>(word << vec4(24u, 16u, 8u, 0u)) >> vec4(24u));
}

// Factor of a head's vectors; heads of values follow those of keys.
fn cache_scale(row: u32, head: u32) -> f32 {
  return bitcast<f32>(#cache[row * CACHE_ROW + CACHE_VECTORS + head]);
}
#else
// The key-value cache in f32. A row is key heads | value heads, VECTORS vectors per head.
#operand cache: array<vec4<f32>>

fn cache_vector(row: u32, vector: u32) -> vec4<f32> {
  return #cache[row * CACHE_VECTORS + vector];
}

// Factor of a head's vectors; heads of values follow those of keys.
fn cache_scale(row: u32, head: u32) -> f32 {
  return 1.0;
}
#endif
