// WGSL has no isnan or isinf, and `x == x` may be folded to true: look at the exponent bits.
fn is_finite(x: f32) -> bool {
  return (bitcast<u32>(x) & 0x7f800000u) != 0x7f800000u;
}
