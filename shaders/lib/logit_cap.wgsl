// A logit, CAPPED: squashed into ±SOFT_CAP (Gemma Team, arXiv:2408.00118), and its derivative by the product. TEMPERED:
// both of the logit over a step's temperature.
#if CAPPED
#import lib/math
#endif

#if TEMPERED
fn logit_of(product: f32) -> f32 {
  return untempered(product) * steering.by_temperature;
}

fn untempered(product: f32) -> f32 {
#else
fn logit_of(product: f32) -> f32 {
#endif
#if CAPPED
  return SOFT_CAP * bounded_tanh(product * (1.0 / SOFT_CAP));
#else
  return product;
#endif
}

#if TEMPERED
fn logit_slope(logit: f32) -> f32 {
  return steering.by_temperature * untempered_slope(logit * steering.temperature);
}

fn untempered_slope(logit: f32) -> f32 {
#else
// From the logit.
fn logit_slope(logit: f32) -> f32 {
#endif
#if CAPPED
  let t = logit * (1.0 / SOFT_CAP);
  return 1.0 - t * t;
#else
  return 1.0;
#endif
}
