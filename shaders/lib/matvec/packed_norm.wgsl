// lib/matvec/packed.wgsl with the RMSNorm before it, as lib/matvec/norm.wgsl. SUMS = PRODUCTS + 1.
@group(0) @binding(3) var<storage, read> norm_weight: array<vec4<f32>>;

fn factor(i: u32) -> vec4<f32> {
  return a[a_row() + i] * norm_weight[i];
}

fn add_squares(sums: ptr<function, array<f32, SUMS>>, v: u32) {
  for (var q = 0u; q < QUADS; q++) {
    let x = a[a_row() + v * QUADS + q];
    (*sums)[PRODUCTS] += dot(x, x);
  }
}

fn scale(sums: ptr<function, array<f32, SUMS>>) -> f32 {
  return inverseSqrt((*sums)[PRODUCTS] / f32(K) + EPSILON);
}
