// A matrix packed in signed bytes: a unit is two words, eight elements of a row. A scale for each 32 elements
// follows all rows, from unit SCALES on.
@group(0) @binding(1) var<storage, read> packed: array<vec2<u32>>;

fn fetch_packed(i: u32) -> vec2<u32> {
  return packed[i];
}

// Elements 4 · q to 4 · q + 3 of a unit, without the scale.
fn quad_of(words: vec2<u32>, q: u32) -> vec4<f32> {
  return vec4<f32>(bitcast<vec4<i32>>(vec4(words[q]) << vec4(24u, 16u, 8u, 0u)) >> vec4(24u));
}

// Factor of unit i.
fn scale_of(i: u32) -> f32 {
  let group = i / 4u;
  return bitcast<f32>(packed[SCALES + group / 2u][group % 2u]);
}
