// The vector that matvec multiplies, with the RMSNorm before it, and a packed matrix: as
// lib/matvec_norm.wgsl. SUMS = PRODUCTS + 1.
@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> norm_weight: array<vec4<f32>>;

fn add_products(sums: ptr<function, array<f32, SUMS>>, n: u32, v: u32) {
  for (var p = 0u; p < PRODUCTS; p++) {
    let i = (p * N + n) * (K / (4u * QUADS)) + v;
    let words = fetch_packed(i);
    var sum = 0.0;
    for (var q = 0u; q < QUADS; q++) {
      let at = v * QUADS + q;
      sum += dot(a[at] * norm_weight[at], quad_of(words, q));
    }
    (*sums)[p] += scale_of(i) * sum;
  }
  for (var q = 0u; q < QUADS; q++) {
    let x = a[v * QUADS + q];
    (*sums)[PRODUCTS] += dot(x, x);
  }
}

fn scale(sums: ptr<function, array<f32, SUMS>>) -> f32 {
  return inverseSqrt((*sums)[PRODUCTS] / f32(K) + EPSILON);
}
