// The result of a matrix-vector product. PRODUCTS = 1.
fn finished(sums: ptr<function, array<f32, SUMS>>, i: u32) -> f32 {
  return (*sums)[0] * scale(sums);
}
