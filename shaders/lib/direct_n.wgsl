// Inner loop of matmul without workgroup memory: four steps of K at a time, each adding a multiple
// of a row of `b`.
fn accumulate(m0: u32, n0: u32, m_end: u32, k_end: u32, column: u32) {
  for (var k = 0u; k < k_end; k += 4u) {
    var left: array<vec4<f32>, TM>;
    for (var i = 0u; i < TM; i++) {
      left[i] = fetch_a(min(m0 + i, m_end - 1u), k, column);
    }
    for (var step_k = 0u; step_k < min(4u, k_end - k); step_k++) {
      for (var j = 0u; j < TN / 4u; j++) {
        let right = fetch_b(k + step_k, min(n0 + j * 4u, (N - 1u) / 4u * 4u));
        for (var i = 0u; i < TM; i++) {
          sums[i][j] += left[i][step_k] * right;
        }
      }
    }
  }
}
