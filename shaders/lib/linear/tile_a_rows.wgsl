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

fn put_a(start: u32, i: u32, value: vec4<f32>) {
  let m = i / VECTORS_K;
  let vector = m / 4u;
  let place = start + i % VECTORS_K * PITCH_A + vector % LANES_M;
  tile_a[vector / LANES_M][0][place][m % 4u] = value.x;
  tile_a[vector / LANES_M][1][place][m % 4u] = value.y;
  tile_a[vector / LANES_M][2][place][m % 4u] = value.z;
  tile_a[vector / LANES_M][3][place][m % 4u] = value.w;
}
