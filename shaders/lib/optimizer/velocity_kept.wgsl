@group(0) @binding(5) var<storage, read_write> moment1: array<Vector>;

// The velocity after a gradient: what is left of the one before, and the gradient.
fn velocity(i: u32, slope: Vector) -> Vector {
  let old = moment1[i];
  let next = step.numbers[MOMENTUM].x * old + slope;
  moment1[i] = select(next, old, step.still != 0u);
  return next;
}
