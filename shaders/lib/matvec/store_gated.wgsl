// The products of a gate's row and of the row above it, N rows on, as activate(gate) · up.
// PRODUCTS = 2.
fn prepare(n: u32) {}

fn finished(sums: ptr<function, array<f32, SUMS>>) -> f32 {
  return activate((*sums)[0] * scale(sums)) * ((*sums)[1] * scale(sums));
}
