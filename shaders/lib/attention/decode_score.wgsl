#import lib/math

// From the product of a key with a query that SCORE_SCALE has scaled to a score in base 2; with
// SOFT_CAPPED squashed as in lib/attention/score.wgsl.
fn decode_score(product: f32) -> f32 {
  if SOFT_CAPPED {
    return SOFT_CAP * 1.4426950408889634 * bounded_tanh(product * (1.0 / SOFT_CAP));
  }
  return product;
}
