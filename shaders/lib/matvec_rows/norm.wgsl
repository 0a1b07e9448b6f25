// The rows that matvec_rows multiplies, with the RMSNorm before it: its weight goes to the matrix, and each unit also
// sums the squares of its rows. SUMS = COLUMNS · (PRODUCTS + 1).
fn weighted(x: vec4<f32>, v: u32) -> vec4<f32> {
  return x * fetch_norm(v);
}

fn add_square(sums: ptr<function, array<f32, SUMS>>, r: u32, x: vec4<f32>) {
  let s = COLUMNS * PRODUCTS + r;
  (*sums)[s] = add_dot((*sums)[s], x, x);
}

fn row_scale(unit: u32, column: u32) -> f32 {
  return inverseSqrt(total(unit, COLUMNS * PRODUCTS + column) / f32(K) + EPSILON);
}
