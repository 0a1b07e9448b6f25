// Whole matrices of results in f32, on lib/matrix/emulated.wgsl.
// What a matrix of results, its first one at `at` of `c`, is added to.
fn start(at: u32) -> Sums {
  var sums = Sums();
  for (var share = 0u; share < MATRIX_M * MATRIX_N / LANES; share++) {
    let result = matrix_lane + share * LANES;
    sums[share] = previous(at + result / MATRIX_N * C_STRIDE + result % MATRIX_N);
  }
  return sums;
}

fn store_sums(at: u32, given: Sums) {
  var sums = given;
  for (var share = 0u; share < MATRIX_M * MATRIX_N / LANES; share++) {
    let result = matrix_lane + share * LANES;
    c[at + result / MATRIX_N * C_STRIDE + result % MATRIX_N] = sums[share];
  }
}
