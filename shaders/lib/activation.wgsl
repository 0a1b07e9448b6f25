// `activate`, an activation of a model, and its derivative.
#import lib/math

#if SILU
// silu(x) = x · sigmoid(x), and its derivative.
fn activate(x: f32) -> f32 {
  return x * sigmoid(x);
}

fn activate_derivative(x: f32) -> f32 {
  let s = sigmoid(x);
  return s * (1.0 + x * (1.0 - s));
}
#elif GELU
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
#else
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
#endif

fn activate_four(x: vec4<f32>) -> vec4<f32> {
  return vec4(activate(x.x), activate(x.y), activate(x.z), activate(x.w));
}

fn activate_derivative_four(x: vec4<f32>) -> vec4<f32> {
  return vec4(
    activate_derivative(x.x), activate_derivative(x.y), activate_derivative(x.z), activate_derivative(x.w));
}
