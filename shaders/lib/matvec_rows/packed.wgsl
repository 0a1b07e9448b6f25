// Products of rows with a packed matrix: a vector is a unit of 4 · QUADS elements. As lib/matvec_rows/plain.wgsl.
@group(0) @binding(0) var<storage, read> a: array<array<vec4<f32>, VECTORS * QUADS>>;

fn add_products(sums: ptr<function, array<f32, SUMS>>, first: u32, row0: u32, v0: u32) {
  var weights = array<vec4<f32>, UNROLLED * PRODUCTS * QUADS>();
  #unroll for (var u = 0u; u < UNROLLED; u++) {
    let v = min(v0 + u * LANES, VECTORS - 1u);
    #unroll for (var p = 0u; p < PRODUCTS; p++) {
      let i = matrix_row(min(first + p / EACH, N - 1u), p % EACH) * VECTORS + v;
      let words = fetch_packed(i);
      let scale = scale_of(i);
      #unroll for (var q = 0u; q < QUADS; q++) {
        weights[(u * PRODUCTS + p) * QUADS + q] = scale * weighted(quad_of(words, q), v * QUADS + q);
      }
    }
  }
  #unroll for (var u = 0u; u < UNROLLED; u++) {
    let v = v0 + u * LANES;
    if !RAGGED || v < VECTORS {
      #unroll for (var r = 0u; r < COLUMNS; r++) {
        let row = min(row0 + r, row_count() - 1u);
        #unroll for (var q = 0u; q < QUADS; q++) {
          let x = a[row][v * QUADS + q];
          #unroll for (var p = 0u; p < PRODUCTS; p++) {
            let s = p * COLUMNS + r;
            (*sums)[s] = add_dot((*sums)[s], x, weights[(u * PRODUCTS + p) * QUADS + q]);
          }
          add_square(sums, r, x);
        }
      }
    }
  }
}
