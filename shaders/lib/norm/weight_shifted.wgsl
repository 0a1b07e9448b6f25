// A norm's factor, stored as its distance from 1 (Gemma Team, arXiv:2403.08295).
fn weight_of(stored: Vector) -> Vector {
  return 1.0 + stored;
}
