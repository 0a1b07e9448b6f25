// The vector that a product by teams multiplies, with the RMSNorm before it, as lib/matvec/norm.wgsl.
// SUMS = 2.
@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> norm_weight: array<vec4<f32>>;

fn begin(lane: u32) {}

fn factor(i: u32) -> vec4<f32> {
  return a[i] * norm_weight[i];
}

fn square(i: u32) -> f32 {
  return dot(a[i], a[i]);
}

fn scale(sums: ptr<function, array<f32, SUMS>>) -> f32 {
  return inverseSqrt((*sums)[1] / f32(K) + EPSILON);
}
