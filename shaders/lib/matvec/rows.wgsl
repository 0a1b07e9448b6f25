// Results of matvec in the order of the matrix's rows: c, f32 [range.col0 + N], overwritten from
// range.col0 on. Product p of result n is with row p · N + n.
@group(0) @binding(3) var<uniform> range: Range;

fn matrix_row(p: u32, n: u32) -> u32 {
  return p * N + n;
}

fn store(sums: ptr<function, array<f32, SUMS>>, n: u32) {
  c[range.col0 + n] = finished(sums);
}
