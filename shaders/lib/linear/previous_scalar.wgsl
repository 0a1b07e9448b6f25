// What a product is added to: nothing, or by WRITE_MODE what `c` holds.
fn previous(i: u32) -> f32 {
  if adds(step.accumulate) {
    return c[i];
  }
  return 0.0;
}
