// Tiles of `b`, stored [K, N], for products of matrices: BK rows of BN cells, ROW_B apart.
const CELLS_B: u32 = BK * ROW_B;

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

fn put_b(i: u32, fetched: FetchedB) {
  let vector = i % (BN * BK / 4u);
  put_cells_b(vector / (BN / 4u) * ROW_B + vector % (BN / 4u) * 4u, elements_b(fetched));
}

fn right_at(k: u32, column: u32) -> Right {
  return right_of_rows(k * ROW_B + column);
}
