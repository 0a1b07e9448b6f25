// A norm's factor, as it is stored, or SHIFTED: stored as its distance from 1 (Gemma Team, arXiv:2403.08295).
fn weight_of(stored: Vector) -> Vector {
#if SHIFTED
  return 1.0 + stored;
#else
  return stored;
#endif
}
