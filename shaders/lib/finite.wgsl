// WGSL has no isnan or isinf, and `x == x` may be folded to true: look at the exponent bits.
fn is_finite(x: f32) -> bool {
  return (bitcast<u32>(x) & 0x7f800000u) != 0x7f800000u;
}

// Zero in place of NaN and infinity.
fn nan_guard(x: f32) -> f32 {
  return select(0.0, x, is_finite(x));
}
