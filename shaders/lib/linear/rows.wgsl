#if OVER_TOKENS
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
#else
// Products whose left operand has one row per token (matmul, matmul_t): M is the batch, K is fixed.
const CHECK_M: bool = true;
const CHECK_K: bool = K % BK != 0u;

fn size_m(rows: u32) -> u32 {
  return rows;
}

fn size_k(rows: u32) -> u32 {
  return K;
}

fn column_of_a(range: Range) -> u32 {
  return A_COLUMNS * range.col0;
}

fn column_of_c(range: Range) -> u32 {
  return C_COLUMNS * range.col0;
}
#endif
