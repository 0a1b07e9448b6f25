// Packs 32 neighbours in f16, two to a word. What f16 cannot hold is bounded to ±65504; what is not
// finite stays not finite.
fn scale_for(extreme: f32) -> f32 {
  return 1.0;
}

// Word w of a group; a group begins at vector `first` of the matrix.
fn word_of(first: u32, w: u32, inverse: f32) -> u32 {
  let x = matrix[first + w / 2u];
  let pair = select(x.xy, x.zw, w % 2u == 1u);
  return pack2x16float(clamp(pair, vec2(-65504.0), vec2(65504.0)));
}

// A word of a group with a number that is not finite.
const NAN_WORD: u32 = HALF_NOT_A_NUMBER;
const SCALED: bool = false;
