// The bias on the products of a row's heads, before the rotation.
#if BIASED
#operand bias: array<f32>  // read  f32 [(HEADS + 2 · KV_HEADS) · HEAD_DIM]
#endif

fn pair_bias(i: u32) -> vec2<f32> {
#if BIASED
  return vec2(#bias[i], #bias[i + HALF]);
#else
  return vec2(0.0);
#endif
}
