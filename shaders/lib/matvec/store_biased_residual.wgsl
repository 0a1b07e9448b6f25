// The result of a matrix-vector product with a bias, added to the residual stream. PRODUCTS = 1.
@group(0) @binding(3) var<storage, read> residual: array<f32>;
@group(0) @binding(4) var<storage, read> bias: array<f32>;

var<private> added: vec2<f32>;

fn prepare(n: u32) {
  added = vec2(residual[FIRST + n], bias[FIRST + n]);
}

fn finished(sums: ptr<function, array<f32, SUMS>>) -> f32 {
  return (*sums)[0] * scale(sums) + added.x + added.y;
}
