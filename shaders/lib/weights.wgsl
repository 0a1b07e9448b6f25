// A matrix that is read by units: `fetch_packed(i)` has the words of unit i, `quad_of` the elements 4 · q to 4 · q + 3 of a
// unit without its scale, `scale_of(i)` the factor of unit i.
#if PACKED_F16
// A matrix packed in f16: a unit is a vector, eight elements of a row.
alias Words = vec4<u32>;

#operand packed: array<vec4<u32>>

fn fetch_packed(i: u32) -> Words {
  return #packed[i];
}

fn quad_of(words: Words, q: u32) -> vec4<f32> {
  return vec4(unpack2x16float(words[2u * q]), unpack2x16float(words[2u * q + 1u]));
}

fn scale_of(i: u32) -> f32 {
  return 1.0;
}
#elif PACKED_INT8
// A matrix packed in signed bytes: a unit is two words, eight elements of a row. A scale for each 32 elements
// follows all rows, from unit SCALES on.
alias Words = vec2<u32>;

#operand packed: array<vec2<u32>>

fn fetch_packed(i: u32) -> Words {
  return #packed[i];
}

fn quad_of(words: Words, q: u32) -> vec4<f32> {
  return vec4<f32>(bitcast<vec4<i32>>(vec4(words[q]) << vec4(24u, 16u, 8u, 0u)) >> vec4(24u));
}

fn scale_of(i: u32) -> f32 {
  let group = i / 4u;
  return bitcast<f32>(#packed[SCALES + group / 2u][group % 2u]);
}
#elif PACKED_INT4
// A matrix packed in four bits an element, less 8: a unit is a word of eight elements of a row, so that neighbours
// have little each. A scale for each 32 elements follows all rows, from unit SCALES on.
alias Words = u32;

#operand packed: array<u32>

fn fetch_packed(i: u32) -> Words {
  return #packed[i];
}

// Below the bits of 2²³ an integer is its own float's mantissa: a subtraction does what a conversion would, which GPUs
// do more slowly.
fn quad_of(word: Words, q: u32) -> vec4<f32> {
  let bits = (vec4(word >> (16u * q)) >> vec4(0u, 4u, 8u, 12u)) & vec4(15u);
  return bitcast<vec4<f32>>(bits | vec4(0x4b000000u)) - 8388616.0;
}

fn scale_of(i: u32) -> f32 {
  return bitcast<f32>(#packed[SCALES + i / 4u]);
}
#else
// A matrix of f32 read as a packed one: a unit is a vector, four elements of a row.
alias Words = vec4<f32>;

#operand b: array<vec4<f32>>

fn fetch_packed(i: u32) -> Words {
  return #b[i];
}

fn quad_of(words: Words, q: u32) -> vec4<f32> {
  return words;
}

fn scale_of(i: u32) -> f32 {
  return 1.0;
}
#endif
