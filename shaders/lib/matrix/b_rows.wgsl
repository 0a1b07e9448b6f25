// Tiles of `b`, stored [N, K], for products of matrices.
const COLUMNS_B: bool = false;
// Vector `i` of the tile, along K. Columns past the end are read from the last one and not stored.
fn load_b(i: u32, n0: u32, k0: u32, k_end: u32) -> FetchedB {
  let k = k0 + i % (BK / 4u) * 4u;
  var value = FetchedB();
  if !CHECK_K || k < k_end {
    value = fetch_b(min(n0 + i / (BK / 4u), N - 1u), k);
  }
  return value;
}
