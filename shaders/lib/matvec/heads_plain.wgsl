// No bias on the products of a row's heads.
fn pair_bias(i: u32) -> vec2<f32> {
  return vec2(0.0);
}
