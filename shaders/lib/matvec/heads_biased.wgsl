// The bias on the products of a row's heads, before the rotation.
//
//   BIAS  bias  read  f32 [(HEADS + 2 · KV_HEADS) · HEAD_DIM]
@group(0) @binding(BIAS) var<storage, read> bias: array<f32>;

fn pair_bias(i: u32) -> vec2<f32> {
  return vec2(bias[i], bias[i + HALF]);
}
