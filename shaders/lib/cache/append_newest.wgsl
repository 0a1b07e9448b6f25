// Rows of a text go behind those that the cache holds.
fn appended_row(t: u32) -> u32 {
  return key_row(step.position + t);
}
