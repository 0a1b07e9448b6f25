// Tiles of `b`, stored [K, N].
// Vector `i` of the tile, along N.
fn load_b(i: u32, n0: u32, k0: u32, k_end: u32) -> FetchedB {
  let k = k0 + i / (BN / 4u);
  let n = n0 + i % (BN / 4u) * 4u;
  var value = FetchedB();
  if (!CHECK_N || n < N) && (!CHECK_K || k < k_end) {
    value = fetch_b(k, n);
  }
  return value;
}

// As place_a and walk_a of tile_a_columns.wgsl.
fn step_b() -> u32 {
  return BK * B_STRIDE;
}

fn place_b(lane: u32, n0: u32, k0: u32) -> u32 {
  return (k0 + lane / (BN / 4u)) * B_STRIDE + n0 + lane % (BN / 4u) * 4u;
}

fn walk_b(at: u32, i: u32) -> FetchedB {
  return fetch_b(i / (BN / 4u), at);
}

fn put_b(i: u32, fetched: FetchedB) {
  let k = i / (BN / 4u);
  let vector = i % (BN / 4u);
  tile_b[vector / LANES_N][k % 4u * VECTORS_K + k / 4u][vector % LANES_N] = elements_b(fetched);
}
