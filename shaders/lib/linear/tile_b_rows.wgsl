// Tiles of `b`, stored [N, K]: transposed on their way, as in tile_a_rows.wgsl.

// Vector `i` of the tile, along K. Columns past the end are read from the last one and not stored.
fn load_b(i: u32, n0: u32, k0: u32, k_end: u32) -> FetchedB {
  let k = k0 + i % VECTORS_K * 4u;
  var value = FetchedB();
  if !CHECK_K || k < k_end {
    value = fetch_b(min(n0 + i / VECTORS_K, N - 1u), k);
  }
  return value;
}

fn put_b(start: u32, i: u32, fetched: FetchedB) {
  let value = elements_b(fetched);
  let n = i / VECTORS_K;
  let vector = n / 4u;
  let place = start + i % VECTORS_K * PITCH_B + vector % LANES_N;
  tile_b[vector / LANES_N][0][place][n % 4u] = value.x;
  tile_b[vector / LANES_N][1][place][n % 4u] = value.y;
  tile_b[vector / LANES_N][2][place][n % 4u] = value.z;
  tile_b[vector / LANES_N][3][place][n % 4u] = value.w;
}
