// silu(x) = x · sigmoid(x), and its derivative.
fn activate(x: f32) -> f32 {
  return x * sigmoid(x);
}

fn activate_derivative(x: f32) -> f32 {
  let s = sigmoid(x);
  return s * (1.0 + x * (1.0 - s));
}
