// What a matrix-vector product is added to: nothing.
fn previous(i: u32) -> f32 {
  return 0.0;
}
