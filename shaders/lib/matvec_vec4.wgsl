// Operands of matvec read four elements at a time: K is a multiple of 4.
@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> b: array<vec4<f32>>;

fn product(n: u32, k: u32) -> f32 {
  return dot(a[k / 4u], b[(n * K + k) / 4u]);
}
