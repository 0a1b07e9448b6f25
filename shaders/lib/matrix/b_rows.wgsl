// Tiles of `b`, stored [N, K], for products of matrices: BN rows of BK cells, ROW_B apart.
const CELLS_B: u32 = BN * ROW_B;

// Vector `i` of the tile, along K. Columns past the end are read from the last one and not stored.
fn load_b(i: u32, n0: u32, k0: u32, k_end: u32) -> FetchedB {
  let k = k0 + i % (BK / 4u) * 4u;
  var value = FetchedB();
  if !CHECK_K || k < k_end {
    value = fetch_b(min(n0 + i / (BK / 4u), N - 1u), k);
  }
  return value;
}

fn put_b(i: u32, fetched: FetchedB) {
  let vector = i % (BN * BK / 4u);
  put_cells_b(vector / (BK / 4u) * ROW_B + vector % (BK / 4u) * 4u, elements_b(fetched));
}

fn right_at(k: u32, column: u32) -> Right {
  return right_of_columns(column * ROW_B + k);
}
