// Tiles of `a`, stored [M, K], for products of matrices: a line for each of M.
const COLUMNS_A: bool = false;
// What lies past the end of M belongs to results that are not stored.
fn load_a(line: u32, four: u32, m0: u32, k0: u32, column: u32) -> FetchedA {
  return fetch_a(m0 + line, k0 + four * 4u, column);
}

fn within_a(line: u32, four: u32, k0: u32, k_end: u32) -> bool {
  return k0 + four * 4u < k_end;
}
