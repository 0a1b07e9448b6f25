// The result of a matrix-vector product added to a residual or a bias. PRODUCTS = 1.
@group(0) @binding(3) var<storage, read> residual: array<f32>;

var<private> added: f32;

fn prepare(n: u32) {
  added = residual[FIRST + n];
}

fn finished(sums: ptr<function, array<f32, SUMS>>) -> f32 {
  return (*sums)[0] * scale(sums) + added;
}
