// Tiles of `a`, stored [K, M], for products of matrices: BK rows of BM cells, ROW_A apart.
const CELLS_A: u32 = BK * ROW_A;

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

fn put_a(i: u32, value: vec4<f32>) {
  let vector = i % (BM * BK / 4u);
  put_cells_a(vector / (BM / 4u) * ROW_A + vector % (BM / 4u) * 4u, value);
}

fn left_at(row: u32, k: u32) -> Left {
  return left_of_columns(k * ROW_A + row);
}
