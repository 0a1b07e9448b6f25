// A logit, CAPPED: squashed into ±SOFT_CAP (Gemma Team, arXiv:2408.00118), and its derivative by the product.
#if CAPPED
#import lib/math
#endif

fn logit_of(product: f32) -> f32 {
#if CAPPED
  return SOFT_CAP * bounded_tanh(product * (1.0 / SOFT_CAP));
#else
  return product;
#endif
}

// From the logit.
fn logit_slope(logit: f32) -> f32 {
#if CAPPED
  let t = logit * (1.0 / SOFT_CAP);
  return 1.0 - t * t;
#else
  return 1.0;
#endif
}
