// Copies a tile of `b`, stored [K, N], into workgroup memory as [BK, BN].
fn stage_b(lane: u32, n0: u32, k0: u32, k_end: u32) {
  for (var i = lane; i < BN * BK / 4u; i += WORKGROUP) {
    let k = i / (BN / 4u);
    let n = i % (BN / 4u) * 4u;
    var value = vec4(0.0);
    if (!CHECK_N || n0 + n < N) && (!CHECK_K || k0 + k < k_end) {
      value = fetch_b(k0 + k, n0 + n);
    }
    tile_b[i] = value;
  }
}
