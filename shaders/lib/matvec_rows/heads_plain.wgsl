// No bias on the products of lib/matvec_rows/heads.wgsl.
fn pair_bias(i: u32) -> vec2<f32> {
  return vec2(0.0);
}
