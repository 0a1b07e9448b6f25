// The vector that matvec multiplies, and the products of a packed matrix with it. Each of its numbers is read once: where
// bindings are shared, a may be written, and a compiler joins no two reads.
@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;

fn add_products(sums: ptr<function, array<f32, SUMS>>, n: u32, v: u32) {
  var factors: array<vec4<f32>, QUADS>;
  #unroll for (var q = 0u; q < QUADS; q++) {
    let x = a[v * QUADS + q];
    factors[q] = weighted(x, v * QUADS + q);
    add_square(sums, x);
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
