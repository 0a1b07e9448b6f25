// Logits i, i + WORKGROUP, … of a row, LOADS of them. All loads are issued before the first is used. Places past
// the vocabulary give its last logit; the caller leaves them out.
fn load_logits(base: u32, i: u32) -> array<f32, LOADS> {
  var values = array<f32, LOADS>();
  #unroll for (var j = 0u; j < LOADS; j++) {
    values[j] = logits[base + min(i + j * WORKGROUP, VOCABULARY - 1u)];
  }
  return values;
}
