// Which of 32 keys a query keeps under dropout, a bit for each: `key0` is a multiple of 32.
fn kept_bits(head: u32, row: u32, key0: u32) -> u32 {
  if !DROPPED {
    return 0xffffffffu;
  }
  var bits = 0u;
  for (var i = 0u; i < 8u; i++) {
    let words = words_of(head, row, key0 + i);
    for (var j = 0u; j < 32u; j += 8u) {
      bits |= select(0u, 1u << (i + j), kept_of(words, key0 + i + j) > 0.0);
    }
  }
  return bits;
}

// What is kept is multiplied by this; without dropout by 1.
fn kept_scale() -> f32 {
  return kept_of(vec4(0xffffffffu), 0u);
}
