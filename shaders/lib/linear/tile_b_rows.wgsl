// Tiles of `b`, stored [N, K]: transposed on their way, as in tile_a_rows.wgsl. Which of its rows a tile holds is said
// by columns.wgsl, or by columns_pairs.wgsl.

// As in tile_a_rows.wgsl.
fn step_b() -> u32 {
  return BK;
}

fn put_b(i: u32, fetched: FetchedB) {
  let value = elements_b(fetched);
  let n = i / VECTORS_K;
  let vector = n / 4u;
  let lane = vector % LANES_N;
  tile_b[vector / LANES_N][0u * VECTORS_K + i % VECTORS_K][lane][n % 4u] = value.x;
  tile_b[vector / LANES_N][1u * VECTORS_K + i % VECTORS_K][lane][n % 4u] = value.y;
  tile_b[vector / LANES_N][2u * VECTORS_K + i % VECTORS_K][lane][n % 4u] = value.z;
  tile_b[vector / LANES_N][3u * VECTORS_K + i % VECTORS_K][lane][n % 4u] = value.w;
}
