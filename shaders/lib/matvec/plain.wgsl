// The vector that matvec multiplies as it is. SUMS = PRODUCTS.
fn add_products(sums: ptr<function, array<f32, SUMS>>, n: u32, v: u32) {
  let x = fetch_a(v);
  #unroll for (var p = 0u; p < PRODUCTS; p++) {
    (*sums)[p] += dot(x, fetch_b(matrix_row(p, n), v));
  }
}

fn scale(sums: ptr<function, array<f32, SUMS>>) -> f32 {
  return 1.0;
}
