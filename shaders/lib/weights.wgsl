// A matrix that is read by units: `fetch_packed(i)` has the words of unit i, `quad_of` the elements 4 · q to 4 · q + 3 of a
// unit without its factor, which `factor_of` makes of the words and of what `fetch_scale(i)` has.
#if PACKED_F16
// A matrix packed in f16: a unit is a vector, eight elements of a row.
alias Words = vec4<u32>;
alias Scale = f32;

#operand packed: array<vec4<u32>>

fn fetch_packed(i: u32) -> Words {
  return #packed[i];
}

fn quad_of(words: Words, q: u32) -> vec4<f32> {
  return vec4(unpack2x16float(words[2u * q]), unpack2x16float(words[2u * q + 1u]));
}

fn fetch_scale(i: u32) -> Scale {
  return 1.0;
}

fn factor_of(words: Words, scale: Scale) -> f32 {
  return scale;
}
#elif PACKED_INT8
// A matrix packed in signed bytes: a unit is two words, eight elements of a row. A scale for each 32 elements
// follows all rows, from unit SCALES on.
alias Words = vec2<u32>;
alias Scale = f32;

#operand packed: array<vec2<u32>>

fn fetch_packed(i: u32) -> Words {
  return #packed[i];
}

fn quad_of(words: Words, q: u32) -> vec4<f32> {
  return vec4<f32>(bitcast<vec4<i32>>(vec4(words[q]) << vec4(24u, 16u, 8u, 0u)) >> vec4(24u));
}

fn fetch_scale(i: u32) -> Scale {
  let group = i / 4u;
  return bitcast<f32>(#packed[SCALES + group / 2u][group % 2u]);
}

fn factor_of(words: Words, scale: Scale) -> f32 {
  return scale;
}
#elif PACKED_INT4
// A matrix packed in four bits an element, less 8: a unit is a word of eight elements of a row, so that neighbours
// have little each. A scale for each 32 elements follows all rows, from unit SCALES on.
alias Words = u32;
alias Scale = f32;

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

fn fetch_scale(i: u32) -> Scale {
  return bitcast<f32>(#packed[SCALES + i / 4u]);
}

fn factor_of(words: Words, scale: Scale) -> f32 {
  return scale;
}
#elif PACKED_INT5
// A matrix packed in five bits an element, as lib/five_bits.wgsl has them: a unit is a word with the lower bits of eight
// elements of a row. The fifth bits follow all rows, from word FIFTHS on, and the grids of each 64 elements from word SCALES on.
#import lib/five_bits

// As they lie: a computation would wait for the loads.
struct Words {
  low: u32,
  fifths: u32,
  grids: u32,
  four: u32,
}
// None beside the words.
alias Scale = u32;

#operand packed: array<u32>

fn fetch_packed(i: u32) -> Words {
  return Words(#packed[i], #packed[FIFTHS + i / 4u], #packed[SCALES + i / 8u], 2u * i);
}

fn quad_of(words: Words, q: u32) -> vec4<f32> {
  return five_bits(words.low, words.fifths, words.four + q) - zero_of(words.grids, words.four);
}

fn fetch_scale(i: u32) -> Scale {
  return 0u;
}

fn factor_of(words: Words, scale: Scale) -> f32 {
  return width_of(words.grids, words.four);
}
#else
// A matrix of f32 read as a packed one: a unit is a vector, four elements of a row.
alias Words = vec4<f32>;
alias Scale = f32;

#operand b: array<vec4<f32>>

fn fetch_packed(i: u32) -> Words {
  return #b[i];
}

fn quad_of(words: Words, q: u32) -> vec4<f32> {
  return words;
}

fn fetch_scale(i: u32) -> Scale {
  return 1.0;
}

fn factor_of(words: Words, scale: Scale) -> f32 {
  return scale;
}
#endif
