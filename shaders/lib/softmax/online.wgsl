// What both forms of softmax_forward share. Below every finite number but the very lowest; the literal
// of that, and of −∞, is refused by some compilers.
const LOWEST: f32 = -3.4e38;

// 1 / sum, and 0 for a row that has nothing.
fn inverse(sum: f32) -> f32 {
  return select(0.0, 1.0 / sum, sum > 0.0);
}
