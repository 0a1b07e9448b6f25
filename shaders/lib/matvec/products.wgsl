// The products of a row with rows of the matrix. NORMED: each row's lanes also sum the squares, so that the norm needs no
// pass of its own. SUMS = PRODUCTS, or one more.
#import lib/matvec/operands

#if BY_UNITS
// Each number of the vector is read once: where bindings are shared, a may be written, and a compiler joins no two reads.
#import lib/weights

fn add_products(sums: ptr<function, array<f32, SUMS>>, n: u32, v: u32) {
  var factors: array<vec4<f32>, QUADS>;
  #unroll for (var q = 0u; q < QUADS; q++) {
    let x = fetch_a(0u, v * QUADS + q);
#if NORMED
    factors[q] = x * fetch_norm(v * QUADS + q);
    (*sums)[PRODUCTS] += dot(x, x);
#else
    factors[q] = x;
#endif
  }
  #unroll for (var p = 0u; p < PRODUCTS; p++) {
    let i = matrix_row(p, n) * (K / (4u * QUADS)) + v;
    let words = fetch_packed(i);
    var sum = 0.0;
    #unroll for (var q = 0u; q < QUADS; q++) {
      sum += dot(factors[q], quad_of(words, q));
    }
    (*sums)[p] += scale_of(i) * sum;
  }
}
#else
fn add_products(sums: ptr<function, array<f32, SUMS>>, n: u32, v: u32) {
  let x = fetch_a(0u, v);
#if NORMED
  let weighted = x * fetch_norm(v);
  (*sums)[PRODUCTS] += dot(x, x);
#else
  let weighted = x;
#endif
  #unroll for (var p = 0u; p < PRODUCTS; p++) {
    (*sums)[p] += dot(weighted, fetch_b(matrix_row(p, n), v));
  }
}
#endif
