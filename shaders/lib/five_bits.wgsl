// Numbers of five bits: number n of a grid is width · (n / 32 − zero). A word has the grids of two groups of 32, in 16 bits
// each: ten of the width, which are those of f16 without its sign and its last five, and six of zero, in 64ths. Of four
// neighbours, which are unpacked together, byte j of a word has the bits of the j-th: the lower four of two fours in one word,
// the fifth ones of eight fours in another. `four` says which four of a matrix it is.

// 1 + n / 32 for each of four neighbours: bits of a float's mantissa are its fraction.
fn five_bits(low: u32, fifths: u32, four: u32) -> vec4<f32> {
  let codes = ((low >> (4u * (four % 2u))) & 0x0f0f0f0fu) | (((fifths >> (four % 8u)) << 4u) & 0x10101010u);
  let fractions = vec4(codes << 18u, codes << 10u, codes << 2u, codes >> 6u) & vec4(0x007c0000u);
  return bitcast<vec4<f32>>(fractions | vec4(0x3f800000u));
}

fn grid_of(grids: u32, four: u32) -> u32 {
  return grids >> ((2u * four) & 16u);
}

// 1 + zero.
fn zero_of(grids: u32, four: u32) -> f32 {
  return bitcast<f32>(((grid_of(grids, four) & 63u) << 17u) | 0x3f800000u);
}

fn width_of(grids: u32, four: u32) -> f32 {
  return unpack2x16float((grid_of(grids, four) >> 1u) & 0x7fe0u).x;
}
