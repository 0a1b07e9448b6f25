// The gradient of a norm's result.
fn slope(i: u32) -> Vector {
  return d_y[i];
}
