// The bias on the products of lib/matvec_rows/heads.wgsl, before the rotation.
//
//   8 bias  read  f32 [(HEADS + 2 · KV_HEADS) · HEAD_DIM]
@group(0) @binding(8) var<storage, read> bias: array<f32>;

fn pair_bias(i: u32) -> vec2<f32> {
  return vec2(bias[i], bias[i + HALF]);
}
