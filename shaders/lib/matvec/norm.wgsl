// The vector that matvec multiplies, with the RMSNorm before it: each row's lanes also sum the
// squares, so that the norm needs no pass of its own. SUMS = PRODUCTS + 1.
fn add_products(sums: ptr<function, array<f32, SUMS>>, n: u32, v: u32) {
  let x = fetch_a(v);
  let weighted = x * fetch_norm(v);
  #unroll for (var p = 0u; p < PRODUCTS; p++) {
    (*sums)[p] += dot(weighted, fetch_b(matrix_row(p, n), v));
  }
  (*sums)[PRODUCTS] += dot(x, x);
}

fn scale(sums: ptr<function, array<f32, SUMS>>) -> f32 {
  return inverseSqrt((*sums)[PRODUCTS] / f32(K) + EPSILON);
}
