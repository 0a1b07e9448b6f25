// Tiles of `a`, stored [K, M].
// Vector `i` of the tile, along M.
fn load_a(i: u32, m0: u32, k0: u32, m_end: u32, k_end: u32, column: u32) -> vec4<f32> {
  let k = k0 + i / (BM / 4u);
  let m = m0 + i % (BM / 4u) * 4u;
  var value = vec4(0.0);
  if (!CHECK_M || m < m_end) && (!CHECK_K || k < k_end) {
    value = fetch_a(k, m, column);
  }
  return value;
}

// As in tile_a_rows.wgsl.
fn step_a() -> u32 {
  return BK * A_STRIDE;
}

fn place_a(lane: u32, m0: u32, k0: u32, column: u32) -> u32 {
  return (k0 + lane / (BM / 4u)) * A_STRIDE + column + m0 + lane % (BM / 4u) * 4u;
}

fn walk_a(at: u32, i: u32) -> vec4<f32> {
  return fetch_a(i / (BM / 4u), at, 0u);
}

fn put_a(i: u32, value: vec4<f32>) {
  let k = i / (BM / 4u);
  let vector = i % (BM / 4u);
  tile_a[vector / LANES_M][k % 4u * VECTORS_K + k / 4u][vector % LANES_M] = value;
}
