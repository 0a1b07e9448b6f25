// Operands of matvec read four elements at a time: K is a multiple of 4.
@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> b: array<vec4<f32>>;

fn fetch_a(v: u32) -> vec4<f32> {
  return a[a_row() + v];
}

fn fetch_b(n: u32, v: u32) -> vec4<f32> {
  return b[n * (K / 4u) + v];
}
