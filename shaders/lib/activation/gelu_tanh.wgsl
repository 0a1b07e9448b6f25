// The tanh approximation of gelu (Hendrycks and Gimpel, arXiv:1606.08415), and its derivative.
const SQRT_TWO_OVER_PI: f32 = 0.79788456080286536;
const CUBIC: f32 = 0.044715;

fn activate(x: f32) -> f32 {
  let t = bounded_tanh(SQRT_TWO_OVER_PI * (x + CUBIC * x * x * x));
  return 0.5 * x * (1.0 + t);
}

fn activate_derivative(x: f32) -> f32 {
  let bounded = clamp(x, -20.0, 20.0);
  let t = bounded_tanh(SQRT_TWO_OVER_PI * (bounded + CUBIC * bounded * bounded * bounded));
  let slope = SQRT_TWO_OVER_PI * (1.0 + 3.0 * CUBIC * bounded * bounded);
  return 0.5 * (1.0 + t) + 0.5 * bounded * (1.0 - t * t) * slope;
}
