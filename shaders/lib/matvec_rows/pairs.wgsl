// Results of matvec_rows of a gate's row and of the row above it, N rows on, as activate(gate) · up: c, f32
// [rows, STRIDE], columns range.col0 … overwritten. EACH = 2.
@group(0) @binding(3) var<uniform> range: Range;

fn row_count() -> u32 {
  return range.rows;
}

fn matrix_row(n: u32, half: u32) -> u32 {
  return half * N + n;
}

fn store(row: u32, n: u32, pair: vec2<f32>) {
  c[row * STRIDE + range.col0 + n] = activate(pair.x) * pair.y;
}
