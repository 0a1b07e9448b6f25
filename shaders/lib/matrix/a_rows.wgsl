// Tiles of `a`, stored [M, K], for products of matrices: BM rows of BK cells, ROW_A apart.
const CELLS_A: u32 = BM * ROW_A;

// Vector `i` of the tile, along K. Rows past the end are read from the last one and not stored.
fn load_a(i: u32, m0: u32, k0: u32, m_end: u32, k_end: u32, column: u32) -> vec4<f32> {
  let k = k0 + i % (BK / 4u) * 4u;
  var value = vec4(0.0);
  if !CHECK_K || k < k_end {
    value = fetch_a(min(m0 + i / (BK / 4u), m_end - 1u), k, column);
  }
  return value;
}

// A remainder tells compilers that the place is within the tile.
fn put_a(i: u32, value: vec4<f32>) {
  let vector = i % (BM * BK / 4u);
  put_cells_a(vector / (BK / 4u) * ROW_A + vector % (BK / 4u) * 4u, value);
}

fn left_at(row: u32, k: u32) -> Left {
  return left_of_rows(row * ROW_A + k);
}
