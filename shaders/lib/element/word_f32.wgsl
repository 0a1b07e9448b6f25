// A word of a tensor stored in f32: one element.
alias Word = f32;

const PER_WORD: u32 = 1u;

fn element(word: Word, index: u32) -> f32 {
  return word;
}

fn pack_word(x: vec2<f32>) -> Word {
  return x.x;
}
