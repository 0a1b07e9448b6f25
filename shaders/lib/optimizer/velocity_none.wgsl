// Without momentum a gradient is the velocity.
fn velocity(i: u32, slope: Vector) -> Vector {
  return slope;
}
