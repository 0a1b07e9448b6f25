// Copies a tile of `a`, stored [M, K], into workgroup memory as [BK, BM].
fn stage_a(lane: u32, m0: u32, k0: u32, m_end: u32, k_end: u32, column: u32) {
  for (var i = lane; i < BM * BK / 4u; i += WORKGROUP) {
    let m = i / (BK / 4u);
    let k = i % (BK / 4u) * 4u;
    var value = vec4(0.0);
    if (!CHECK_M || m0 + m < m_end) && (!CHECK_K || k0 + k < k_end) {
      value = fetch_a(m0 + m, k0 + k, column);
    }
    tile_a[k * (BM / 4u) + m / 4u][m % 4u] = value.x;
    tile_a[(k + 1u) * (BM / 4u) + m / 4u][m % 4u] = value.y;
    tile_a[(k + 2u) * (BM / 4u) + m / 4u][m % 4u] = value.z;
    tile_a[(k + 3u) * (BM / 4u) + m / 4u][m % 4u] = value.w;
  }
}
