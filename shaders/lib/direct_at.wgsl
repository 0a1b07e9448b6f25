// Inner loop of matmul_at without workgroup memory: one outer product of TM×TN a token.
fn accumulate(m0: u32, n0: u32, m_end: u32, k_end: u32, column: u32) {
  for (var k = 0u; k < k_end; k++) {
    var right: array<vec4<f32>, TN / 4u>;
    for (var j = 0u; j < TN / 4u; j++) {
      right[j] = fetch_b(k, min(n0 + j * 4u, (N - 1u) / 4u * 4u));
    }
    for (var i = 0u; i < TM / 4u; i++) {
      let left = fetch_a(k, min(m0 + i * 4u, (m_end - 1u) / 4u * 4u), column);
      for (var j = 0u; j < TN / 4u; j++) {
        sums[i * 4u][j] += left.x * right[j];
        sums[i * 4u + 1u][j] += left.y * right[j];
        sums[i * 4u + 2u][j] += left.z * right[j];
        sums[i * 4u + 3u][j] += left.w * right[j];
      }
    }
  }
}
