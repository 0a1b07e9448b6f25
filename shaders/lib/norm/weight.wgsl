// A norm's factor, as it is stored.
fn weight_of(stored: f32) -> f32 {
  return stored;
}
