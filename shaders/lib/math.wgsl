// Functions that drivers leave out or get wrong. SwiftShader's tanh is NaN from 89 on; WGSL has no
// erf.
const LN_2: f32 = 0.69314718055994531;

// Near 0 by its series: drivers promise an absolute error there, and a large soft cap multiplies it.
fn bounded_tanh(x: f32) -> f32 {
  let y = x * x;
  let near = x * (1.0 + y * (-0.33333333 + y * (0.13333333 - y * 0.053968254)));
  return select(tanh(clamp(x, -15.0, 15.0)), near, abs(x) < 0.1);
}

fn sigmoid(x: f32) -> f32 {
  return 1.0 / (1.0 + exp(-max(x, -80.0)));
}

// erf, good to f32 in [-4, 4]; beyond, it is 1 to f32's precision. Two rational forms of W. J. Cody,
// "Rational Chebyshev approximations for the error function", Math. Comp. 23 (1969): erf itself
// near zero, erfc elsewhere.
fn erf_small(x: f32) -> f32 {
  let y = x * x;
  let p = (((1.85777706184603153e-1 * y + 3.16112374387056560e0) * y + 1.13864154151050156e2) * y
    + 3.77485237685302021e2) * y + 3.20937758913846947e3;
  let q = (((y + 2.36012909523441209e1) * y + 2.44024637934444173e2) * y + 1.28261652607737228e3) * y
    + 2.84423683343917062e3;
  return x * p / q;
}

fn erfc_middle(x: f32) -> f32 {
  let p = (((((((2.15311535474403846e-8 * x + 5.64188496988670089e-1) * x + 8.88314979438837594e0) * x
    + 6.61191906371416295e1) * x + 2.98635138197400131e2) * x + 8.81952221241769090e2) * x
    + 1.71204761263407058e3) * x + 2.05107837782607147e3) * x + 1.23033935479799725e3;
  let q = (((((((x + 1.57449261107098347e1) * x + 1.17693950891312499e2) * x + 5.37181101862009858e2) * x
    + 1.62138957456669019e3) * x + 3.29079923573345963e3) * x + 4.36261909014324716e3) * x
    + 3.43936767414372164e3) * x + 1.23033935480374942e3;
  return exp(-x * x) * p / q;
}

fn erf(x: f32) -> f32 {
  let a = min(abs(x), 4.0);
  let tail = sign(x) * (1.0 - erfc_middle(a));
  return select(tail, erf_small(x), a <= 0.46875);
}
