// Tiles of `b`, stored [K, N], for products of matrices.
const COLUMNS_B: bool = true;
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
