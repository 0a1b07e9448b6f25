// gelu(x) = x · Φ(x) with the normal distribution function through erf, and its derivative.
const SQRT_HALF: f32 = 0.70710678118654752;
const SQRT_HALF_OVER_PI: f32 = 0.39894228040143268;

fn activate(x: f32) -> f32 {
  return 0.5 * x * (1.0 + erf(x * SQRT_HALF));
}

fn activate_derivative(x: f32) -> f32 {
  let bounded = clamp(x, -12.0, 12.0);
  return 0.5 * (1.0 + erf(x * SQRT_HALF)) + bounded * SQRT_HALF_OVER_PI * exp(-0.5 * bounded * bounded);
}
