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
