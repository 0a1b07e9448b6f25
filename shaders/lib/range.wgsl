// The rows of a token-indexed operand, and the columns of an output, that one dispatch covers.
struct Range {
  row0: u32,  // first token row
  rows: u32,  // most token rows
  col0: u32,  // first output column, or first vocabulary row
  cols: u32,  // columns, or vocabulary rows
}

// Token rows of this dispatch: the batch may end before or inside its range.
fn range_rows(tokens: u32, range: Range) -> u32 {
  return min(tokens - min(tokens, range.row0), range.rows);
}
