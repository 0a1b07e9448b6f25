#import lib/math

// From the product of a query and a key to a score in units of SCORE_UNIT, which what the score is for
// multiplies anyway: with SOFT_CAPPED squashed into ±SOFT_CAP by SOFT_CAP · tanh(x / SOFT_CAP) (Gemma
// Team, arXiv:2408.00118), in units of 1.
fn score_of(product: f32) -> f32 {
  if SOFT_CAPPED {
    return SOFT_CAP * bounded_tanh(product * (SCALE / SOFT_CAP));
  }
  return product;
}
const SCORE_UNIT: f32 = select(SCALE, 1.0, SOFT_CAPPED);
const LOG2_E: f32 = 1.4426950408889634;
const SCORE_UNIT_LOG2: f32 = SCORE_UNIT * LOG2_E;

// The derivative of the score by the product, from the score, in units of SCALE.
fn score_slope(score: f32) -> f32 {
  if SOFT_CAPPED {
    let t = score * (1.0 / SOFT_CAP);
    return 1.0 - t * t;
  }
  return 1.0;
}

// exp(score + added − lse).
fn probability(score: f32, added: f32, lse: f32) -> f32 {
  return exp2(fma(score, SCORE_UNIT_LOG2, (added - lse) * LOG2_E));
}

// A bias below this hides its key.
const UNMASKED: f32 = 0.5 * MASKED;
// A sum of weights to divide by, for a row without any.
const LEAST_TOTAL: f32 = 1e-30;
