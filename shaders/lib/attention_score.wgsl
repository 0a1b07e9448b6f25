// From the product of a query and a key to a score: scaled, and with SOFT_CAPPED squashed into
// ±SOFT_CAP by SOFT_CAP · tanh(x / SOFT_CAP) (Gemma Team, arXiv:2408.00118).
fn score_of(product: f32) -> f32 {
  if SOFT_CAPPED {
    return SOFT_CAP * bounded_tanh(product * (SCALE / SOFT_CAP));
  }
  return product * SCALE;
}

// The derivative of score_of by the product, from the score.
fn score_slope(score: f32) -> f32 {
  if SOFT_CAPPED {
    let t = score * (1.0 / SOFT_CAP);
    return SCALE * (1.0 - t * t);
  }
  return SCALE;
}

// Stands for minus infinity: some compilers reject the real one, and differences of it are NaN. A
// bias below UNMASKED hides its key.
const MASKED: f32 = -1e30;
const HIDDEN: f32 = -1e30;
const UNMASKED: f32 = -5e29;
// A sum of weights to divide by, for a row without any.
const LEAST_TOTAL: f32 = 1e-30;
