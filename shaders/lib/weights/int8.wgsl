// A matrix packed in signed bytes, sixteen elements of a row to a vector, two vectors to a scale. The
// scales follow all rows, from vector SCALES on.
@group(0) @binding(1) var<storage, read> packed: array<vec4<u32>>;

fn fetch_packed(i: u32) -> vec4<u32> {
  return packed[i];
}

// Elements 4 · q to 4 · q + 3 of a vector, without the scale.
fn quad_of(words: vec4<u32>, q: u32) -> vec4<f32> {
  let word = vec4(words[q]);
  return vec4<f32>(bitcast<vec4<i32>>(word << vec4(24u, 16u, 8u, 0u)) >> vec4(24u));
}

// Factor of vector i.
fn scale_of(i: u32) -> f32 {
  let group = i / 2u;
  return bitcast<f32>(packed[SCALES + group / 4u][group % 4u]);
}
