// Columns col … col + 3 of row `row` of `c`.
fn store_c(row: u32, col: u32, column: u32, value: vec4<f32>) {
  let i = (row * C_STRIDE + column + col) / 4u;
  c[i] = result_of(value + previous(i));
}
