// The key-value cache, as kernels read it. A row is key heads | value heads, VECTORS vectors of four elements per head and
// CACHE_VECTORS in all. Signed bytes have a word per vector, and behind these the heads' scales as f32 in the same order:
// CACHE_ROW words.
#if CACHE_F16
#operand cache: array<vec2<u32>>
#elif CACHE_INT8
#operand cache: array<u32>
#else
#operand cache: array<vec4<f32>>
#endif

// Without its head's scale.
fn cache_vector(row: u32, vector: u32) -> vec4<f32> {
#if CACHE_F16
  let words = #cache[row * CACHE_VECTORS + vector];
  return vec4(unpack2x16float(words.x), unpack2x16float(words.y));
#elif CACHE_INT8
  let word = vec4(#cache[row * CACHE_ROW + vector]);
  return vec4<f32>(bitcast<vec4<i32>>(word << vec4(24u, 16u, 8u, 0u)) >> vec4(24u));
#else
  return #cache[row * CACHE_VECTORS + vector];
#endif
}

// Factor of a head's vectors; heads of values follow those of keys.
fn cache_scale(row: u32, head: u32) -> f32 {
#if CACHE_INT8
  return bitcast<f32>(#cache[row * CACHE_ROW + CACHE_VECTORS + head]);
#else
  return 1.0;
#endif
}
