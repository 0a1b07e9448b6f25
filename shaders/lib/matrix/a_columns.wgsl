// Tiles of `a`, stored [K, M], for products of matrices.
const COLUMNS_A: bool = true;
// Vector `i` of the tile, along M.
fn load_a(i: u32, m0: u32, k0: u32, m_end: u32, k_end: u32, column: u32) -> FetchedA {
  let k = k0 + i / (BM / 4u);
  let m = m0 + i % (BM / 4u) * 4u;
  var value = FetchedA();
  if (!CHECK_M || m < m_end) && (!CHECK_K || k < k_end) {
    value = fetch_a(k, m, column);
  }
  return value;
}
