// A matrix of f32 read as a packed one: a unit is a vector, four elements of a row.
@group(0) @binding(1) var<storage, read> b: array<vec4<f32>>;

fn fetch_packed(i: u32) -> vec4<f32> {
  return b[i];
}

fn quad_of(words: vec4<f32>, q: u32) -> vec4<f32> {
  return words;
}

fn scale_of(i: u32) -> f32 {
  return 1.0;
}
