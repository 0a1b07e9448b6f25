// Products of rows with rows of the matrix. NORMED: the norm's weight goes to the matrix, and each unit also sums the squares
// of its rows. SUMS = COLUMNS · PRODUCTS, or COLUMNS · (PRODUCTS + 1).
#import lib/matvec/operands

fn weighted(x: vec4<f32>, v: u32) -> vec4<f32> {
#if NORMED
  return x * fetch_norm(v);
#else
  return x;
#endif
}

// One rounding for each product, in one order.
fn add_dot(sum: f32, x: vec4<f32>, y: vec4<f32>) -> f32 {
  return fma(x.w, y.w, fma(x.z, y.z, fma(x.y, y.y, fma(x.x, y.x, sum))));
}

fn add_square(sums: ptr<function, array<f32, SUMS>>, r: u32, x: vec4<f32>) {
#if NORMED
  let s = COLUMNS * PRODUCTS + r;
  (*sums)[s] = add_dot((*sums)[s], x, x);
#endif
}

#if BY_UNITS
#import lib/weights
// With a packed matrix: a vector is a unit of 4 · QUADS elements.

fn add_products(sums: ptr<function, array<f32, SUMS>>, first: u32, row0: u32, v0: u32) {
  var weights = array<vec4<f32>, UNROLLED * PRODUCTS * QUADS>();
  #unroll for (var u = 0u; u < UNROLLED; u++) {
    let v = min(v0 + u * LANES, VECTORS - 1u);
    #unroll for (var p = 0u; p < PRODUCTS; p++) {
      let i = matrix_row(p % EACH, min(first + p / EACH, N - 1u)) * VECTORS + v;
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
          let x = fetch_a(row, v * QUADS + q);
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
#else
// Vectors past the last of a row are read as the last, and not added.
fn add_products(sums: ptr<function, array<f32, SUMS>>, first: u32, row0: u32, v0: u32) {
  var weights = array<vec4<f32>, UNROLLED * PRODUCTS>();
  #unroll for (var u = 0u; u < UNROLLED; u++) {
    #unroll for (var p = 0u; p < PRODUCTS; p++) {
      weights[u * PRODUCTS + p] =
        fetch_b(matrix_row(p % EACH, min(first + p / EACH, N - 1u)), min(v0 + u * LANES, VECTORS - 1u));
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
#endif
