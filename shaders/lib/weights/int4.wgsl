// A matrix packed in four bits an element, less 8, thirty-two elements of a row to a vector and a
// scale. The scales follow all rows, from vector SCALES on.
@group(0) @binding(1) var<storage, read> packed: array<vec4<u32>>;

fn fetch_packed(i: u32) -> vec4<u32> {
  return packed[i];
}

// Elements 4 · q to 4 · q + 3 of a vector, without the scale.
fn quad_of(words: vec4<u32>, q: u32) -> vec4<f32> {
  let word = vec4(words[q / 2u] >> (16u * (q % 2u)));
  return vec4<f32>((word >> vec4(0u, 4u, 8u, 12u)) & vec4(15u)) - 8.0;
}

// Factor of vector i.
fn scale_of(i: u32) -> f32 {
  return bitcast<f32>(packed[SCALES + i / 4u][i % 4u]);
}
