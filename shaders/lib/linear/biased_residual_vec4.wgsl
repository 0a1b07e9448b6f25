// What a product is added to: the residual stream, which stays as it was, and a bias, f32 [C_STRIDE].
@group(0) @binding(5) var<storage, read> residual: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read> bias: array<vec4<f32>>;

fn previous(i: u32) -> vec4<f32> {
  return residual[i] + bias[i % (C_STRIDE / 4u)];
}
