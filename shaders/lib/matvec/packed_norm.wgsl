// lib/matvec/packed.wgsl with the RMSNorm before it, as lib/matvec/norm.wgsl. SUMS = PRODUCTS + 1.
@group(0) @binding(3) var<storage, read> norm_weight: array<vec4<f32>>;

fn weighted(x: vec4<f32>, i: u32) -> vec4<f32> {
  return x * norm_weight[i];
}

fn add_square(sums: ptr<function, array<f32, SUMS>>, x: vec4<f32>) {
  (*sums)[PRODUCTS] += dot(x, x);
}

fn scale(sums: ptr<function, array<f32, SUMS>>) -> f32 {
  return inverseSqrt((*sums)[PRODUCTS] / f32(K) + EPSILON);
}
