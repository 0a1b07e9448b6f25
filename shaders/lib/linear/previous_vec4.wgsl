// What a product is added to: nothing, or by WRITE_MODE what `c` holds.
fn previous(i: u32) -> vec4<f32> {
  if adds(step.accumulate) {
    return c[i];
  }
  return vec4(0.0);
}
