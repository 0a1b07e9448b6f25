// lib/matvec/packed.wgsl with the vector as it is. SUMS = PRODUCTS.
fn weighted(x: vec4<f32>, i: u32) -> vec4<f32> {
  return x;
}

fn add_square(sums: ptr<function, array<f32, SUMS>>, x: vec4<f32>) {}

fn scale(sums: ptr<function, array<f32, SUMS>>) -> f32 {
  return 1.0;
}
