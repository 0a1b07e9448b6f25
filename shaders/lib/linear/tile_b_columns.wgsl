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

fn put_b(start: u32, i: u32, fetched: FetchedB) {
  let k = i / (BN / 4u);
  let vector = i % (BN / 4u);
  tile_b[vector / LANES_N][k % 4u][start + k / 4u * PITCH_B + vector % LANES_N] = elements_b(fetched);
}
