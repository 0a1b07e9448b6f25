// Tiles of `b`, stored [N, K], for products of matrices: a line for each of N.
const COLUMNS_B: bool = false;
// What lies past the end of N belongs to results that are not stored.
fn load_b(line: u32, four: u32, n0: u32, k0: u32) -> FetchedB {
  return fetch_b(n0 + line, k0 + four * 4u);
}

fn within_b(line: u32, four: u32, k0: u32, k_end: u32) -> bool {
  return k0 + four * 4u < k_end;
}
