// Results of matvec_rows in the order of the matrix's rows: c, f32 [rows, STRIDE], columns range.col0 … overwritten.
// EACH = 1.
@group(0) @binding(3) var<uniform> range: Range;

fn row_count() -> u32 {
  return range.rows;
}

fn matrix_row(n: u32, half: u32) -> u32 {
  return n;
}

fn store(row: u32, n: u32, pair: vec2<f32>) {
  let column = range.col0 + n;
  let place = row * STRIDE + column;
  c[place] = pair.x + added(place, column);
}
