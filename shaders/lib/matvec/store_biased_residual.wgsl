// The result of a matrix-vector product with a bias, added to the residual stream. PRODUCTS = 1.
@group(0) @binding(4) var<storage, read> residual: array<f32>;
@group(0) @binding(5) var<storage, read> bias: array<f32>;

fn finished(sums: ptr<function, array<f32, SUMS>>, i: u32) -> f32 {
  return (*sums)[0] * scale(sums) + residual[i] + bias[i];
}
