// logsumexp of the logits as the model gave them, and the largest.
fn log_sum_exp(lane: u32) -> vec2<f32> {
  let terms = softmax_terms(lane, 0u);
  return vec2(terms.x + log(terms.y), terms.x);
}
