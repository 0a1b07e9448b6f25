// A matrix packed in four bits an element, less 8: a unit is a word of eight elements of a row, so that neighbours
// have little each. A scale for each 32 elements follows all rows, from unit SCALES on.
@group(0) @binding(1) var<storage, read> packed: array<u32>;

fn fetch_packed(i: u32) -> u32 {
  return packed[i];
}

// Elements 4 · q to 4 · q + 3 of a unit, without the scale. Below the bits of 2²³ an integer is its own float's
// mantissa: a subtraction does what a conversion would, which GPUs do more slowly.
fn quad_of(word: u32, q: u32) -> vec4<f32> {
  let bits = (vec4(word >> (16u * q)) >> vec4(0u, 4u, 8u, 12u)) & vec4(15u);
  return bitcast<vec4<f32>>(bits | vec4(0x4b000000u)) - 8388616.0;
}

// Factor of unit i.
fn scale_of(i: u32) -> f32 {
  return bitcast<f32>(packed[SCALES + i / 4u]);
}
