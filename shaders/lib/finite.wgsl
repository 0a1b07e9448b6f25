// A NaN in f32, and two in f16.
const NOT_A_NUMBER: u32 = 0x7fc00000u;
const HALF_NOT_A_NUMBER: u32 = 0x7e007e00u;

// WGSL has no isnan or isinf, and `x == x` may be folded to true: look at the exponent bits.
fn is_finite(x: f32) -> bool {
  return (bitcast<u32>(x) & 0x7f800000u) != 0x7f800000u;
}
