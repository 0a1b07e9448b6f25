// logsumexp of a row of logits as the model gave them, and the largest.
fn log_sum_exp(lane: u32, base: u32) -> vec2<f32> {
  let terms = softmax_terms(lane, base);
  return vec2(terms.x + log(terms.y), terms.x);
}
