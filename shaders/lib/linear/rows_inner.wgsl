// The product summed over tokens (matmul_at): K is the batch, M is fixed.
const CHECK_M: bool = M % BM != 0u;
const CHECK_K: bool = true;

fn size_m(rows: u32) -> u32 {
  return M;
}

fn size_k(rows: u32) -> u32 {
  return rows;
}

fn column_of_a(range: Range) -> u32 {
  return range.col0;
}

fn column_of_c(range: Range) -> u32 {
  return 0u;
}
