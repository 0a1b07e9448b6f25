// The result of a matrix-vector product added to what its place holds, such as the residual stream. PRODUCTS = 1.
// Invocations that store nothing read a place too, which its owner may have written meanwhile: they use no value of it.
var<private> added: f32;

fn prepare(n: u32) {
  added = c[FIRST + n];
}

fn finished(sums: ptr<function, array<f32, SUMS>>) -> f32 {
  return (*sums)[0] * scale(sums) + added;
}
