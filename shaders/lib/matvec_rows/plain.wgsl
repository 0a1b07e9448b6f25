// Products of rows with a matrix of f32.
fn add_products(sums: ptr<function, array<f32, SUMS>>, first: u32, row0: u32, v: u32) {
  var weights = array<vec4<f32>, PRODUCTS>();
  for (var p = 0u; p < PRODUCTS; p++) {
    weights[p] = fetch_b(min(first + p, N - 1u), v);
  }
  for (var r = 0u; r < COLUMNS; r++) {
    let x = fetch_a(min(row0 + r, range.rows - 1u), v);
    for (var p = 0u; p < PRODUCTS; p++) {
      (*sums)[p * COLUMNS + r] += dot(x, weights[p]);
    }
  }
}
