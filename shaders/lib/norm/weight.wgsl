// A norm's factor, as it is stored.
fn weight_of(stored: Vector) -> Vector {
  return stored;
}
