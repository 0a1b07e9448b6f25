// Tiles of `a`, stored [M, K]: transposed on their way. PAD_A vectors between the rows of four steps of
// K keep the stores of a subgroup in different banks.

// Vector `i` of the tile, along K. Rows past the end are read from the last one and not stored.
fn load_a(i: u32, m0: u32, k0: u32, m_end: u32, k_end: u32, column: u32) -> vec4<f32> {
  let k = k0 + i % VECTORS_K * 4u;
  var value = vec4(0.0);
  if !CHECK_K || k < k_end {
    value = fetch_a(min(m0 + i / VECTORS_K, m_end - 1u), k, column);
  }
  return value;
}

// Element of `a` where an invocation's first vector of a tile begins; a step of K goes step_a() on. Tiles that lie
// whole inside K are loaded from there: rows past the end from wherever they would be.
fn step_a() -> u32 {
  return BK;
}

fn place_a(lane: u32, m0: u32, k0: u32, column: u32) -> u32 {
  return (m0 + lane / VECTORS_K) * A_STRIDE + column + k0 + lane % VECTORS_K * 4u;
}

fn walk_a(at: u32, i: u32) -> vec4<f32> {
  return fetch_a(i / VECTORS_K, at, 0u);
}

fn put_a(i: u32, value: vec4<f32>) {
  let m = i / VECTORS_K;
  let vector = m / 4u;
  let lane = vector % LANES_M;
  tile_a[vector / LANES_M][0u * VECTORS_K + i % VECTORS_K][lane][m % 4u] = value.x;
  tile_a[vector / LANES_M][1u * VECTORS_K + i % VECTORS_K][lane][m % 4u] = value.y;
  tile_a[vector / LANES_M][2u * VECTORS_K + i % VECTORS_K][lane][m % 4u] = value.z;
  tile_a[vector / LANES_M][3u * VECTORS_K + i % VECTORS_K][lane][m % 4u] = value.w;
}
