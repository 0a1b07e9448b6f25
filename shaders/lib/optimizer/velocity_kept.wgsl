@group(0) @binding(5) var<storage, read_write> moment1: array<Vector>;

// The velocity after a gradient: what is left of the one before, and the gradient.
fn velocity(i: u32, momentum: f32, slope: Vector) -> Vector {
  let next = momentum * moment1[i] + slope;
  moment1[i] = next;
  return next;
}
