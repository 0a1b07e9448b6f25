// Results of matvec in the order of the matrix's rows: c, f32 [FIRST + N], overwritten from FIRST on.
// Product p of result n is with row p · N + n.
fn matrix_row(p: u32, n: u32) -> u32 {
  return p * N + n;
}

fn store(sums: ptr<function, array<f32, SUMS>>, n: u32) {
  c[FIRST + n] = finished(sums);
}
