// logsumexp of the logits as the model gave them.
fn log_sum_exp(lane: u32) -> f32 {
  var largest = -1e30;
  for (var i = lane; i < VOCABULARY; i += WORKGROUP) {
    largest = max(largest, logits[i]);
  }
  let top = reduce_max(lane, largest);
  var sum = 0.0;
  for (var i = lane; i < VOCABULARY; i += WORKGROUP) {
    sum += exp(logits[i] - top);
  }
  return top + log(reduce_sum(lane, sum));
}
