// The vector that matvec multiplies, and its products with rows of the matrix. NORMED: with the RMSNorm before it. Each
// row's lanes then also sum the squares, so that the norm needs no pass of its own. SUMS = PRODUCTS, or one more.
#if NORMED
#import lib/matvec/norm_weight
#endif

#if PACKED
// A packed matrix. Each number of the vector is read once: where bindings are shared, a may be written, and a compiler
// joins no two reads.
#import lib/weights
#operand a: array<vec4<f32>>

fn add_products(sums: ptr<function, array<f32, SUMS>>, n: u32, v: u32) {
  var factors: array<vec4<f32>, QUADS>;
  #unroll for (var q = 0u; q < QUADS; q++) {
    let x = #a[v * QUADS + q];
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
#if BY_FOUR
#operand a: array<vec4<f32>>
#operand b: array<vec4<f32>>

fn fetch_a(v: u32) -> vec4<f32> {
  return #a[v];
}

fn fetch_b(n: u32, v: u32) -> vec4<f32> {
  return #b[n * (K / 4u) + v];
}
#else
#operand a: array<f32>
#operand b: array<f32>

// Elements 4 · v to 4 · v + 3, zero past K.
fn fetch_a(v: u32) -> vec4<f32> {
  var value = vec4<f32>();
  for (var i = 0u; i < min(4u, K - v * 4u); i++) {
    value[i] = #a[v * 4u + i];
  }
  return value;
}

fn fetch_b(n: u32, v: u32) -> vec4<f32> {
  var value = vec4<f32>();
  for (var i = 0u; i < min(4u, K - v * 4u); i++) {
    value[i] = #b[n * K + v * 4u + i];
  }
  return value;
}
#endif

fn add_products(sums: ptr<function, array<f32, SUMS>>, n: u32, v: u32) {
  let x = fetch_a(v);
#if NORMED
  let weighted = x * fetch_norm(v);
#else
  let weighted = x;
#endif
  #unroll for (var p = 0u; p < PRODUCTS; p++) {
    (*sums)[p] += dot(weighted, fetch_b(matrix_row(p, n), v));
  }
#if NORMED
  (*sums)[PRODUCTS] += dot(x, x);
#endif
}
#endif

fn scale(sums: ptr<function, array<f32, SUMS>>) -> f32 {
#if NORMED
  return inverseSqrt((*sums)[PRODUCTS] / f32(K) + EPSILON);
#else
  return 1.0;
#endif
}
