// Products of rows with a matrix of f32. Vectors past the last of a row are read as the last, and not added.
fn add_products(sums: ptr<function, array<f32, SUMS>>, first: u32, row0: u32, v0: u32) {
  var weights = array<vec4<f32>, UNROLLED * PRODUCTS>();
  #unroll for (var u = 0u; u < UNROLLED; u++) {
    #unroll for (var p = 0u; p < PRODUCTS; p++) {
      weights[u * PRODUCTS + p] =
        fetch_b(matrix_row(min(first + p / EACH, N - 1u), p % EACH), min(v0 + u * LANES, VECTORS - 1u));
    }
  }
  #unroll for (var u = 0u; u < UNROLLED; u++) {
    let v = v0 + u * LANES;
    if !RAGGED || v < VECTORS {
      #unroll for (var p = 0u; p < PRODUCTS; p++) {
        weights[u * PRODUCTS + p] = weighted(weights[u * PRODUCTS + p], v);
      }
      #unroll for (var r = 0u; r < COLUMNS; r++) {
        let x = fetch_a(min(row0 + r, row_count() - 1u), v);
        #unroll for (var p = 0u; p < PRODUCTS; p++) {
          let s = p * COLUMNS + r;
          (*sums)[s] = add_dot((*sums)[s], x, weights[u * PRODUCTS + p]);
        }
        add_square(sums, r, x);
      }
    }
  }
}
