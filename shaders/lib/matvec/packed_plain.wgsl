// lib/matvec/packed.wgsl with the vector as it is. SUMS = PRODUCTS.
fn factor(i: u32) -> vec4<f32> {
  return a[a_row() + i];
}

fn add_squares(sums: ptr<function, array<f32, SUMS>>, v: u32) {}

fn scale(sums: ptr<function, array<f32, SUMS>>) -> f32 {
  return 1.0;
}
