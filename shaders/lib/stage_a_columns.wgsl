// Copies a tile of `a`, stored [K, M], into workgroup memory as [BK, BM].
fn stage_a(lane: u32, m0: u32, k0: u32, m_end: u32, k_end: u32, column: u32) {
  for (var i = lane; i < BM * BK / 4u; i += WORKGROUP) {
    let k = i / (BM / 4u);
    let m = i % (BM / 4u) * 4u;
    var value = vec4(0.0);
    if (!CHECK_M || m0 + m < m_end) && (!CHECK_K || k0 + k < k_end) {
      value = fetch_a(k0 + k, m0 + m, column);
    }
    tile_a[i] = value;
  }
}
