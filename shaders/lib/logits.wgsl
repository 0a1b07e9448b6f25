// Logits i, i + WORKGROUP, … of a row, LOADS of them. All loads are issued before the first is used. Places past
// the vocabulary give its last logit; the caller leaves them out.
fn load_logits(base: u32, i: u32) -> array<f32, LOADS> {
  var values = array<f32, LOADS>();
  #unroll for (var j = 0u; j < LOADS; j++) {
    values[j] = logits[base + min(i + j * WORKGROUP, VOCABULARY - 1u)];
  }
  return values;
}

// The maximum of a row of logits and the sum of exp(logit − maximum), by a workgroup, in one pass (online softmax:
// Milakov and Gimelshein, arXiv:1805.02867).
fn softmax_terms(lane: u32, base: u32) -> vec2<f32> {
  var largest = -1e30;
  var total = 0.0;
  for (var i = lane; i < VOCABULARY; i += LOADS * WORKGROUP) {
    let values = load_logits(base, i);
    var next = largest;
    #unroll for (var j = 0u; j < LOADS; j++) {
      next = max(next, values[j]);
    }
    total *= exp(largest - next);
    #unroll for (var j = 0u; j < LOADS; j++) {
      total += select(0.0, exp(values[j] - next), i + j * WORKGROUP < VOCABULARY);
    }
    largest = next;
  }
  let row_max = reduce_max(lane, largest);
  return vec2(row_max, reduce_sum(lane, total * exp(largest - row_max)));
}
