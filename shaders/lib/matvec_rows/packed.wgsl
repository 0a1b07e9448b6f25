// Products of rows with a packed matrix: a vector is a unit of 4 · QUADS elements.
@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;

fn add_products(sums: ptr<function, array<f32, SUMS>>, first: u32, row0: u32, v: u32) {
  var weights = array<vec4<f32>, PRODUCTS * QUADS>();
  for (var p = 0u; p < PRODUCTS; p++) {
    let i = min(first + p, N - 1u) * VECTORS + v;
    let words = fetch_packed(i);
    let scale = scale_of(i);
    for (var q = 0u; q < QUADS; q++) {
      weights[p * QUADS + q] = scale * quad_of(words, q);
    }
  }
  for (var r = 0u; r < COLUMNS; r++) {
    let at = (min(row0 + r, range.rows - 1u) * VECTORS + v) * QUADS;
    for (var q = 0u; q < QUADS; q++) {
      let x = a[at + q];
      for (var p = 0u; p < PRODUCTS; p++) {
        (*sums)[p * COLUMNS + r] += dot(x, weights[p * QUADS + q]);
      }
    }
  }
}
