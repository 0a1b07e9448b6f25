// A word of a tensor stored in f16: two elements, the first in the low half. Needs lib/element/quad_f16.wgsl.
alias Word = u32;

const PER_WORD: u32 = 2u;

fn element(word: Word, index: u32) -> f32 {
  return unpack2x16float(word)[index];
}

fn pack_word(x: vec2<f32>) -> Word {
  return pack_pair(x);
}
