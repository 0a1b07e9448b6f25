// The rows that matvec_rows multiplies, and their products with rows of the matrix. NORMED: with the RMSNorm before it. Its
// weight goes to the matrix, and each unit also sums the squares of its rows. SUMS = COLUMNS · PRODUCTS, or
// COLUMNS · (PRODUCTS + 1).
#if NORMED
#import lib/matvec/norm_weight
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
#else
fn weighted(x: vec4<f32>, v: u32) -> vec4<f32> {
  return x;
}

fn add_square(sums: ptr<function, array<f32, SUMS>>, r: u32, x: vec4<f32>) {}

fn row_scale(unit: u32, column: u32) -> f32 {
  return 1.0;
}
#endif

#if PACKED
#import lib/weights
// Products of rows with a packed matrix: a vector is a unit of 4 · QUADS elements.
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
#else
#if BY_FOUR
// Operands of matvec_rows read four elements at a time: K is a multiple of 4. In rows, so that an index is checked
// once for a row and once for all vectors of the same place.
@group(0) @binding(0) var<storage, read> a: array<array<vec4<f32>, VECTORS>>;
@group(0) @binding(1) var<storage, read> b: array<array<vec4<f32>, VECTORS>>;

fn fetch_a(row: u32, v: u32) -> vec4<f32> {
  return a[row][v];
}

fn fetch_b(row: u32, v: u32) -> vec4<f32> {
  return b[row][v];
}
#else
// Operands of matvec_rows read one element at a time, for K that is no multiple of 4.
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;

// Elements 4 · v to 4 · v + 3, zero past K.
fn fetch_a(row: u32, v: u32) -> vec4<f32> {
  var value = vec4<f32>();
  for (var i = 0u; i < min(4u, K - v * 4u); i++) {
    value[i] = a[row * K + v * 4u + i];
  }
  return value;
}

fn fetch_b(row: u32, v: u32) -> vec4<f32> {
  var value = vec4<f32>();
  for (var i = 0u; i < min(4u, K - v * 4u); i++) {
    value[i] = b[row * K + v * 4u + i];
  }
  return value;
}
#endif

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
#endif
