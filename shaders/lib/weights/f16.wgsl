// A matrix packed in f16: a unit is a vector, eight elements of a row.
@group(0) @binding(1) var<storage, read> packed: array<vec4<u32>>;

fn fetch_packed(i: u32) -> vec4<u32> {
  return packed[i];
}

// Elements 4 · q to 4 · q + 3 of a unit, without the scale.
fn quad_of(words: vec4<u32>, q: u32) -> vec4<f32> {
  return vec4(unpack2x16float(words[2u * q]), unpack2x16float(words[2u * q + 1u]));
}

// Factor of unit i.
fn scale_of(i: u32) -> f32 {
  return 1.0;
}
