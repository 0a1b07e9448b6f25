// Copies a tile of `b`, stored [N, K], into workgroup memory as [BK, BN].
fn stage_b(lane: u32, n0: u32, k0: u32, k_end: u32) {
  for (var i = lane; i < BN * BK / 4u; i += WORKGROUP) {
    let n = i / (BK / 4u);
    let k = i % (BK / 4u) * 4u;
    var value = vec4(0.0);
    if (!CHECK_N || n0 + n < N) && (!CHECK_K || k0 + k < k_end) {
      value = fetch_b(n0 + n, k0 + k);
    }
    tile_b[k * (BN / 4u) + n / 4u][n % 4u] = value.x;
    tile_b[(k + 1u) * (BN / 4u) + n / 4u][n % 4u] = value.y;
    tile_b[(k + 2u) * (BN / 4u) + n / 4u][n % 4u] = value.z;
    tile_b[(k + 3u) * (BN / 4u) + n / 4u][n % 4u] = value.w;
  }
}
