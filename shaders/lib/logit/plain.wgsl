// A logit as the head's product gives it.
fn logit_of(product: f32) -> f32 {
  return product;
}

// Its derivative by the product.
fn logit_slope(logit: f32) -> f32 {
  return 1.0;
}
