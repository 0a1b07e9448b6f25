// A logit squashed into ±SOFT_CAP, on top of lib/math (Gemma Team, arXiv:2408.00118).
fn logit_of(product: f32) -> f32 {
  return SOFT_CAP * bounded_tanh(product * (1.0 / SOFT_CAP));
}

// Its derivative by the product, from the logit.
fn logit_slope(logit: f32) -> f32 {
  let t = logit * (1.0 / SOFT_CAP);
  return 1.0 - t * t;
}
