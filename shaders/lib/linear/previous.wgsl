// What a product is added to: the RESIDUAL stream, which stays as it was, a BIAS, f32 [C_STRIDE], or both. Else nothing, or
// by WRITE_MODE what `c` holds: in f16 it is overwritten.
#import lib/vector
#import lib/write_mode

#if RESIDUAL
#operand residual: array<Vector>  // read  f32, as c
#endif
#if BIAS
#operand bias: array<Vector>  // read  f32 [C_STRIDE]
#endif

fn previous(i: u32) -> Vector {
#if RESIDUAL
  var sum = #residual[i];
#if BIAS
  sum += #bias[i % (C_STRIDE / VECTOR_SIZE)];
#endif
  return sum;
#elif BIAS
  return #bias[i % (C_STRIDE / VECTOR_SIZE)];
#elif F16
  return Vector();
#else
  if adds(step.accumulate) {
    return c[i];
  }
  return Vector();
#endif
}
