// Tiles of `a`, stored [M, K], for products of matrices.
const COLUMNS_A: bool = false;
// Vector `i` of the tile, along K. Rows past the end are read from the last one and not stored.
fn load_a(i: u32, m0: u32, k0: u32, m_end: u32, k_end: u32, column: u32) -> FetchedA {
  let k = k0 + i % (BK / 4u) * 4u;
  var value = FetchedA();
  if !CHECK_K || k < k_end {
    value = fetch_a(min(m0 + i / (BK / 4u), m_end - 1u), k, column);
  }
  return value;
}
