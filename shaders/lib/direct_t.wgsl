// Inner loop of matmul_t without workgroup memory: both operands run along K, so each result is a
// sum of dot products of four.
fn accumulate(m0: u32, n0: u32, m_end: u32, k_end: u32, column: u32) {
  for (var k = 0u; k < k_end; k += 4u) {
    var right: array<vec4<f32>, TN>;
    for (var j = 0u; j < TN; j++) {
      right[j] = fetch_b(min(n0 + j, N - 1u), k);
    }
    for (var i = 0u; i < TM; i++) {
      let left = fetch_a(min(m0 + i, m_end - 1u), k, column);
      for (var j = 0u; j < TN / 4u; j++) {
        sums[i][j] += vec4(dot(left, right[j * 4u]), dot(left, right[j * 4u + 1u]),
          dot(left, right[j * 4u + 2u]), dot(left, right[j * 4u + 3u]));
      }
    }
  }
}
